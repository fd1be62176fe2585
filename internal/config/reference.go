package config

import (
	"fmt"
	"slices"
	"strings"
)

// find returns the option with the flag, which the table has.
func find(flag string) option {
	for _, o := range options() {
		if o.flag == flag {
			return o
		}
	}

	panic("no option " + flag)
}

// Reference returns the options as a Markdown table: all but those of
// NetworkReference and ImageReference.
func Reference() string {
	elsewhere := slices.Concat(networkOptions(), imageOptions())

	return table(slices.DeleteFunc(options(), func(o option) bool {
		return slices.ContainsFunc(elsewhere, func(n option) bool { return n.flag == o.flag })
	}))
}

// ImageReference returns the options on images as a Markdown table.
func ImageReference() string { return table(imageOptions()) }

// NetworkReference returns the options on certificates and on credentials for the
// image factory as a Markdown table.
func NetworkReference() string { return table(networkOptions()) }

func table(options []option) string {
	var b strings.Builder

	b.WriteString("| Flag | Variable | Default | Meaning |\n|---|---|---|---|\n")

	for _, o := range options {
		flag, env, help := "`--"+o.flag+"`", "`"+o.env+"`", o.help
		if o.secret {
			flag, env = "`--"+o.fileFlag()+"`", env+", or a file: `"+o.fileEnv()+"`"
		}

		def := "`" + o.def + "`"

		switch {
		case o.def == "" && o.required:
			def = "required"
		case o.def == "":
			def = ""
		}

		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", flag, env, def, help)
	}

	return b.String()
}
