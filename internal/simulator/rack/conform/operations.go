package conform

import (
	"os"
	"strings"
)

// Operations are the document's operation IDs by method and path, such as "GET
// /v1/disks/{disk}"; nil when the environment names no document.
func Operations() (map[string]string, error) {
	path := os.Getenv(DocumentVariable)
	if path == "" {
		return nil, nil
	}

	doc, err := load(path)
	if err != nil {
		return nil, err
	}

	out := map[string]string{}

	for key, ops := range doc.closed.routes {
		for _, o := range ops {
			out[key.method+" "+strings.Join(o.parts, "/")] = o.route.Operation.OperationID
		}
	}

	return out, nil
}

// Environment is what a child process with a rack in it must be given to check
// as this process does.
func Environment() []string {
	var out []string

	for _, name := range []string{DocumentVariable, ReportVariable} {
		if value, has := os.LookupEnv(name); has {
			out = append(out, name+"="+value)
		}
	}

	return out
}
