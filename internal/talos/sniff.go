package talos

import (
	"bytes"
	"fmt"
)

// The kinds of content that can be decoded.
const (
	contentZstd = "zstd"
	contentXZ   = "xz"
	contentGzip = "gzip"
	contentDisk = "a raw disk"
)

// signatures are the first bytes of what an answer may be. The first that fits
// wins.
var signatures = []struct{ magic, kind string }{
	{"\x28\xb5\x2f\xfd", contentZstd},
	{"\xfd7zXZ\x00", contentXZ},
	{"\x1f\x8b", contentGzip},
	{"QFI\xfb", "a qcow2 image"},
	{"BZh", "bzip2"},
	{"PK\x03\x04", "a zip archive"},
	{"MZ", "an EFI program"},
}

// sniff names the kind of content by its first bytes.
func sniff(start []byte) string {
	for _, s := range signatures {
		if bytes.HasPrefix(start, []byte(s.magic)) {
			return s.kind
		}
	}

	text := bytes.ToLower(bytes.TrimSpace(bytes.TrimPrefix(start, []byte("\xef\xbb\xbf"))))

	switch {
	case len(start) == 0:
		return "empty"
	case len(start) >= 512 && start[510] == 0x55 && start[511] == 0xaa:
		return contentDisk
	case bytes.HasPrefix(text, []byte("<?xml")) && !bytes.Contains(text, []byte("<html")):
		return "XML"
	case bytes.HasPrefix(text, []byte("<")):
		return "an HTML page"
	case bytes.HasPrefix(text, []byte("{")) || bytes.HasPrefix(text, []byte("[")):
		return "JSON"
	case isText(start):
		return "plain text"
	}

	return fmt.Sprintf("of no known kind (it starts with %x)", start[:min(4, len(start))])
}

func isText(b []byte) bool {
	return !bytes.ContainsFunc(b, func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0xfffd
	})
}
