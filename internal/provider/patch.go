package provider

import "fmt"

// providerIDPatch is the config patch that gives kubelet its provider ID, as
// the Oxide cloud controller expects it. Omni copies a patch under its own name
// into a namespace that all providers and users share, so the name holds the
// provider and the request, with a dot between them that a provider ID can not
// hold. The weight keeps it before the user's patches of the same level.
func providerIDPatch(requestID, instanceID string) (name string, data []byte) {
	return fmt.Sprintf("000-%s.%s-provider-id", providerID(), requestID),
		fmt.Appendf(nil, "machine:\n  kubelet:\n    extraConfig:\n      providerID: oxide://%s\n", instanceID)
}
