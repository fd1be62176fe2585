// Package omni is a simulated Omni: the gRPC API that infrastructure providers
// and omnictl speak, the machine API that Talos calls to join, and the
// controllers behind them, on loopback.
//
// It is a server of the real protocols, so that the real SDK runs against it
// unchanged. What it does it does as a real Omni v1.9 was seen to do; what no
// provider and no guest of ours can tell apart is left out (Kubernetes, etcd,
// upgrades, users, the web page).
//
// A request passes through these layers:
//
//	gRPC ── call log, hooks ── signature ── access rules ── validation ── faults ── store
//
// The controllers work on the store directly. They are functions that compare
// what is with what should be, run one after the other by one loop whenever the
// store or a guest's link changed, so their order is the same in every run.
//
// The life of a machine request, as Omni sees it:
//
//	MachineSet ─> MachineRequestSet ─> MachineRequest
//	                                        │ the provider makes a MachineRequestStatus
//	Provision call of a guest ─> Link ─> InfraMachineRegistration
//	                                        │ the provider writes the status' ID
//	                            Link ─> Machine ─> MachineSetNode ─> ClusterMachine ─> config applied
//
//	request torn down ─> the provider tears the status down
//	    ─> node reset, ClusterMachine gone ─> Link torn down ─> Machine gone
//	    ─> status released ─> the provider deprovisions ─> request gone
package omni
