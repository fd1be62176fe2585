// Package rack is a simulated Oxide rack: the HTTP API of one silo in version
// 2026060800, with the state, the limits and the refusals of the real one. It
// runs in a test's process or as a server, and any client of the API can be
// pointed at it.
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
//	detached, creating         | instance create            | attached
//	attached                   | snapshot                   | (stays)
//	attached                   | instance delete, unwinding | detached
//	detached, faulted          | delete                     | gone
//
// Any other pair is refused with 400, a second snapshot of a disk in
// maintenance with 409. The answer of a create says creating always.
//
// # Snapshots and images
//
// A snapshot is creating until its saga ends, then ready; ready and faulted
// ones can be deleted. An image has no state: it belongs to a project or to
// the silo, promote and demote move it between the two. Content is shared
// between disks, snapshots and images that stem from each other, and lives as
// long as any of them.
//
// # Instances
//
//	state                          | event              | becomes
//	-------------------------------+--------------------+------------------------------------
//	-                              | create             | creating
//	creating                       | saga ends          | stopped
//	creating                       | saga fails         | gone, with the disks made in it
//	stopped, failed                | start              | starting
//	starting                       | VM is up           | running
//	running, rebooting             | reboot             | rebooting
//	rebooting                      | VM is up           | running
//	starting, running, rebooting   | stop               | stopping, then stopped
//	starting, running, rebooting   | guest powers off   | stopping, then stopped
//	starting, running, rebooting   | crash              | stopping, then failed
//	failed                         | restart is due     | starting
//	failed                         | stop               | stopped
//	stopped, failed                | delete             | gone, its disks detached and kept
//
// What the calls answer:
//
//	state                        | start    | stop     | reboot | delete
//	-----------------------------+----------+----------+--------+--------
//	creating                     | 409      | 400      | 400    | 400
//	starting                     | 202 as is| 202      | 400    | 400 (*)
//	running, rebooting           | 202 as is| 202      | 202    | 400 (*)
//	stopping                     | 409      | 202 as is| 400    | 400 (*)
//	stopped                      | 202      | 202 as is| 400    | 204
//	failed                       | 202      | 202      | 400    | 204
//	gone                         | 404      | 404      | 404    | 404
//
// (*) Refused, but the instance loses its automatic restart and its NAT
// entries: see Server.Inspect.
//
// A start charges the silo's quota and reserves room on a sled; both are held
// until the VM is gone. A failed instance starts again by itself unless its
// policy is never, it was meant to stop, or the last such start is less than
// the cool-down ago.
//
// # Faults
//
// A Fault picks calls and spoils them. Faults, the log of calls and events are
// reached in Go and, without token, below /simulator/:
//
//	GET    /simulator/summary
//	GET    /simulator/calls
//	GET    /simulator/faults
//	POST   /simulator/faults                    one rule or an array of rules
//	DELETE /simulator/faults[?id=N]
//	GET    /simulator/instances/{id}
//	POST   /simulator/instances/{id}/crash
//	POST   /simulator/instances/{id}/power-off
//	POST   /simulator/instances/{id}/reboot
//	POST   /simulator/instances/{id}/migrate
package rack
