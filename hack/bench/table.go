package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// table prints the results for people: seconds, ratios and MiB.
func table(out io.Writer, all []result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)

	fmt.Fprintln(w, "row\truns\tdownload\tdecode\tupload\twall\twall/LB\ttarget\tcpu/decode\ttarget\tidle\tpeak\tgrowth\twriters\tdials\tcalls\t")

	for _, r := range all {
		fmt.Fprintf(w, "%s\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t%.2f\t%s\t%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t%.0f\t\n",
			r.Row, r.Runs, r.Download, r.Decode, r.Upload, r.Wall, r.Ratio, target(r.Target), r.CPU, target(r.CPUTarget),
			r.Idle, r.Peak, r.Peak-r.Idle, r.Writers, r.Connections, r.Calls)
	}

	w.Flush() //nolint:errcheck // nothing is left to do about it

	for _, r := range all {
		fmt.Fprintf(out, "%s: %s\n", r.Row, r.About)
	}

	fmt.Fprintln(out, "LB is the greatest of download, decode and upload alone; calls are those beside the writes; seconds and MiB")
}

func target(t float64) string {
	if t == 0 {
		return "-"
	}

	return fmt.Sprintf("%.2f", t)
}
