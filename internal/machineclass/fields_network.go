package machineclass

import "fmt"

func networkFields() []field {
	return []field{
		{
			key: "network_interfaces", title: "Network interfaces", kind: kindList, max: maxInterfaces,
			help:      "Interfaces, all in one VPC, each in its own subnet, the primary one first",
			otherwise: "one IPv4 interface in the VPC and subnet named default",
			entry:     &field{kind: kindObject, title: "Network interface", fields: interfaceFields()},
			example:   "[{ip_config: dual_stack, vpc_name: default, subnet_name: default}]",
			note: "An interface with an IPv4 address takes a share of an address of the silo's default IPv4 pool for its way out; " +
				"one without can only get out through an external IPv6 address.",
		},
		{
			key: "external_ips", title: "External addresses", kind: kindList, max: maxExternalIPs,
			help:    fmt.Sprintf("Addresses at which machines are reached from outside, of them at most %d ephemeral, one of each IP version", maxEphemeralIPs),
			entry:   &field{kind: kindObject, title: "External address", fields: externalFields()},
			example: "[{type: ephemeral, ip_version: v4}, {type: floating, floating_ips: [gateway-0, gateway-1]}]",
			note:    "Omni needs none: machines reach it from inside.",
			limit:   " in all",
		},
		{
			key: "enable_jumbo_frames", title: "Jumbo frames", kind: kindFlag, def: false,
			help: "Packets of up to 8500 bytes, only on racks that allow it",
		},
	}
}

func interfaceFields() []field {
	return []field{
		{
			key: "ip_config", title: "IP configuration", kind: kindEnum, def: IPv4,
			values: []string{IPv4, IPv6, DualStack},
			help:   "IP versions of the interface: v4, v6 or dual_stack",
		},
		{
			key: "vpc_name", title: "VPC", kind: kindText, form: nameForm, def: defaultName,
			help: "Name of the VPC, one for all interfaces",
		},
		{
			key: "subnet_name", title: "Subnet", kind: kindText, form: nameForm, def: defaultName,
			help: "Name of the VPC subnet",
		},
		{
			key: "addresses", title: "Fixed addresses", kind: kindList, max: maxInterfaceAddrs,
			help:      "Addresses of the subnet that the class's machines share, each machine one of each IP version given",
			otherwise: "the rack chooses",
			entry:     &field{kind: kindText, form: addressForm, title: "Address", help: "IPv4 or IPv6 address"},
			example:   "[172.30.0.20, 172.30.0.21]",
			note:      "An address that somebody else has is passed over; a machine waits while none of them is free.",
		},
		{
			key: "transit_ips", title: "Transit networks", kind: kindList, max: maxTransit,
			help:    "Other networks that the interface may send from and receive for, such as that of a CNI in native-routing mode",
			entry:   &field{kind: kindText, form: networkForm, title: "Network", help: "Network, such as 10.244.0.0/16"},
			example: "[10.244.0.0/16]",
		},
	}
}

func externalFields() []field {
	return []field{
		{
			key: "type", title: "Type", kind: kindEnum, def: Ephemeral, values: []string{Ephemeral, Floating},
			help: "ephemeral (gone when the machine is) or floating",
			note: "A floating address is made for the machine and removed with it, unless `floating_ips` names existing ones.",
		},
		{
			key: "ip_version", title: "IP version", kind: kindEnum, values: []string{IPv4, IPv6},
			help:      "v4 or v6, which the primary interface must have too",
			otherwise: "that of the pool, v4 without one",
		},
		{
			key: "pool", title: "Pool", kind: kindText, form: nameOrIDForm,
			help: "Name or ID of the address pool", otherwise: "the silo's default one of the IP version",
		},
		{
			key: "floating_ips", title: "Existing floating addresses", kind: kindList, max: maxFloatingIPs, unique: true,
			help:    "Names or IDs of floating addresses of the project that the class's machines share, each machine one",
			entry:   &field{kind: kindText, form: nameOrIDForm, title: "Floating address", help: "Name or ID of a floating address"},
			example: "[gateway-0, gateway-1]",
			note: "They are only attached and detached, never removed. One that is attached elsewhere is passed over; " +
				"a machine waits while none of them is free.",
		},
	}
}
