package config

import (
	"fmt"
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

// Reference returns all options as a Markdown table.
func Reference() string {
	var b strings.Builder

	b.WriteString("| Flag | Variable | Default | Meaning |\n|---|---|---|---|\n")

	for _, o := range options() {
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
