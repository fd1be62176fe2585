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

// OptionsPage is the page on all options, in Markdown.
func OptionsPage() string {
	var b strings.Builder

	b.WriteString(`# Options

<!-- Made by "make generate" from internal/config. -->

A flag wins over a variable, and a variable that is empty counts as one that is not set. A secret never stands on the
command line and is never printed: it comes from its variable, or from a file that a flag or a variable with ` + "`_FILE`" + `
names. A value that is wrong is told in one line with the option, the value and its limits, all of them at once, and
the process ends with exit code 2.
`)

	for _, section := range []struct {
		title   string
		options []option
	}{
		{"Omni and the provider", omniOptions()},
		{"The rack", oxideOptions()},
		{"Replicas", leaseOptions()},
		{"Images", imageOptions()},
		{"Work, health and logs", workOptions()},
		{"Networks", networkOptions()},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s", section.title, table(section.options))
	}

	b.WriteString(`
Proxies come from ` + "`HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`" + `, which [networks](networks.md) explains. systemd's ` + "`NOTIFY_SOCKET`" + `
and ` + "`WATCHDOG_USEC`" + ` are obeyed, and Go's own variables, such as ` + "`GOMEMLIMIT`" + `, too.
`)

	return b.String()
}
