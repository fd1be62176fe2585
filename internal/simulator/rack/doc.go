// Package rack is a simulated Oxide rack: the HTTP API of one silo in version
// 2026060800, with the state, the limits and the refusals of the real one. It
// runs in a test's process or as a server, and any client of the API can be
// pointed at it. It is the last of a rack to come up: package setup brings up
// what lies below it and hands it what it runs on.
//
// Calls that change something block for as long as their saga takes, and are
// carried to their end although the client has left. Server.mu guards the
// state and is never held while time passes.
//
// # Disks
//
//	state                      | event                      | becomes
//	---------------------------+----------------------------+---------------------------
//	-                          | create                     | creating
//	creating                   | saga ends                  | detached
//	creating                   | saga ends, importing       | import_ready
//	import_ready               | bulk-write-start           | importing_from_bulk_writes
//	importing_from_bulk_writes | bulk-write                 | (stays)
//	importing_from_bulk_writes | bulk-write-stop            | import_ready
//	import_ready               | finalize                   | finalizing
//	finalizing                 | saga ends                  | detached
//	finalizing                 | snapshot can not be made   | import_ready
//	detached                   | snapshot                   | maintenance
//	maintenance                | saga ends                  | detached
//	detached                   | attach, instance create    | attached
//	creating                   | instance create            | attached
//	attached                   | attach, same instance      | (stays)
//	attached                   | snapshot                   | (stays)
//	attached                   | detach, instance stopped   | detached
//	attached                   | instance delete, unwinding | detached
//	detached, faulted          | delete                     | gone
//	detached, faulted          | delete that fails (fault)  | faulted, named deleted-<id>
//	attached                   | detach, held (fault)       | detaching
//	detaching                  | let go                     | detached
//	any                        | event (fault)              | faulted, or gone
//
// Any other pair is refused with 400, a second snapshot of a disk in
// maintenance and the detach of a boot disk with 409. The answer of a create
// says creating always. Attach wants an instance that is stopped, detach one
// that is stopped or failed.
//
// A local disk is made detached, has blocks of 4096 bytes, and answers all
// calls of an import with 500 and a snapshot with 400. It takes its space on a
// sled when an instance first starts with it, and stays there until it is
// deleted: the instance starts on that sled or not at all, and never migrates.
// A read-only disk has the size of its image or snapshot and no snapshots.
//
// # Snapshots, images and floating addresses
//
//	object      | state    | event             | becomes
//	------------+----------+-------------------+---------
//	snapshot    | -        | create, finalize  | creating
//	snapshot    | creating | saga ends         | ready
//	snapshot    | ready    | delete            | gone
//	snapshot    | faulted  | delete            | gone
//	image       | -        | create, project   | project
//	image       | -        | create, silo      | silo
//	image       | project  | promote           | silo
//	image       | silo     | demote            | project
//	image       | either   | delete            | gone
//	floating IP | -        | create            | free
//	floating IP | free     | attach, instance  | attached
//	            |          | create            |
//	floating IP | attached | attach, same      | (stays)
//	            |          | instance          |
//	floating IP | attached | detach, instance  | free
//	            |          | delete, unwinding |
//	floating IP | free     | delete            | gone
//
// Any other pair is refused with 400. An attach or detach of an address takes
// its time, and another of the same address is answered 503 meanwhile; so are
// those of an instance that is on its way from one state to another. Content
// is shared between disks, snapshots and images that stem from each other, and
// lives as long as any of them.
//
// # Instances
//
//	state                        | event              | becomes
//	-----------------------------+--------------------+----------------------------------
//	-                            | create             | creating
//	creating                     | saga ends          | stopped
//	creating                     | saga fails         | gone, with the disks made in it
//	stopped, failed              | start              | starting
//	starting                     | VM is up           | running
//	running, rebooting           | reboot             | rebooting
//	running                      | guest reboots      | rebooting
//	rebooting                    | VM is up           | running
//	starting, running, rebooting | stop               | stopping, then stopped
//	running                      | migration          | migrating
//	migrating                    | migration ends     | running
//	migrating                    | stop               | (stays), then running, stopping
//	any with a VM                | guest powers off   | stopping, then stopped
//	any with a VM                | crash              | stopping, then failed
//	failed                       | restart is due     | starting
//	failed                       | stop               | stopped
//	stopped, failed              | update             | (stays), size and boot disk too
//	any other                    | update             | (stays), restart policy only
//	stopped, failed              | delete             | gone, its disks detached and kept
//
// What the calls answer:
//
//	state                        | start    | stop     | reboot | delete
//	-----------------------------+----------+----------+--------+--------
//	creating                     | 409      | 400      | 400    | 400
//	starting                     | 202 as is| 202      | 400    | 400 (*)
//	running, rebooting           | 202 as is| 202      | 202    | 400 (*)
//	migrating                    | 202 as is| 202 later| 400    | 400 (*)
//	stopping                     | 409      | 202 as is| 400    | 400 (*)
//	stopped                      | 202      | 202 as is| 400    | 204
//	failed                       | 202      | 202      | 400    | 204
//	gone                         | 404      | 404      | 404    | 404
//
// (*) Refused, but the instance loses its automatic restart and its NAT
// entries: see Server.Inspect.
//
// Interfaces come and go while an instance is stopped, addresses while it is
// stopped or runs.
//
// A start charges the silo's quota and reserves room on a sled; both are held
// until the VM is gone, and a migration holds room on two sleds. A failed instance starts again by itself unless its
// policy is never, it was meant to stop, or the last such start is less than
// the cool-down ago.
//
// # Faults
//
// A Fault is a rule, in one format in Go, in files, on the command line and at
// the control endpoint; FaultKinds lists them all. It is one of three:
//
//	what      | picked by                     | lasts
//	----------+-------------------------------+-------------------------------------------
//	action    | operation, method, path,      | for the call that it hits; the first rule
//	          | token, skip, count, chance    | that fires is applied
//	condition | -                             | until the rule is removed
//	event     | -, or as an action            | happens once, before the work of that call
//
// All three can be bound to a time, from and until. Conditions come before
// actions: while the rack is away for maintenance no rule hits a call. Serve has
// nobody listen then; a rack that is served otherwise drops connections.
//
// What conditions do to what is under way: an object that is stuck in a state,
// and the call that waits for it, go on when the rule is removed. A pantry that
// does not answer but is in DNS is tried for ever by whoever needs it, in
// finalize and in the creation of an importing disk; one that is out of DNS is
// done without by finalize, and is chosen for no new disk. Writes to either get
// 500, those to a pantry that has forgotten the disk 400 with the disk's ID as
// message. A sled that does not answer gets starts, stops and reboots 502 or
// 504; a stop counts as asked for all the same, a start as not made. After the
// rule's delay its instances fail, and nothing is placed there any more.
//
// Time is that of Config.Clock: the system's, that of a synctest bubble, or a
// StepClock.
//
// Faults, the log of calls, digests and events are reached in Go and, without
// token, below /simulator/, also by Server.Control where Serve refuses all:
//
//	GET    /simulator/summary
//	GET    /simulator/calls[?operation=&status=&path=&method=&token=&user_agent=&fault=&fault_name=&after=&limit=]
//	GET    /simulator/faults
//	POST   /simulator/faults                    one rule or an array of rules
//	DELETE /simulator/faults[?id=N]
//	GET    /simulator/disks/{id}/digest         [?length=N or ?chunks]
//	GET    /simulator/images/{id}/digest        [?length=N or ?chunks]
//	GET    /simulator/instances/{id}
//	POST   /simulator/instances/{id}/crash
//	POST   /simulator/instances/{id}/power-off
//	POST   /simulator/instances/{id}/reboot
//	POST   /simulator/instances/{id}/migrate
//
// # Content
//
// Uploaded bytes are kept in chunks of 512 KiB, those of zeros not at all, and
// shared between disks, snapshots and images until one is written to.
// Config.Content can have the rack keep only their SHA-256, or nothing.
//
// # Conformance
//
// When the environment names the API's OpenAPI document, every rack holds all
// that passes against it: see package conform.
package rack
