package rack

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Set changes one delay, written such as disk_create=2s.
func (l *Latencies) Set(setting string) error {
	name, value, _ := strings.Cut(setting, "=")

	var names []string

	for field, to := range reflect.ValueOf(l).Elem().Fields() {
		names = append(names, snake(field.Name))

		if snake(field.Name) != name {
			continue
		}

		d, err := time.ParseDuration(value)
		if err != nil || d < 0 {
			return fmt.Errorf("%s is %q: it must be a duration such as \"1m30s\"", name, value)
		}

		to.SetInt(int64(d))

		return nil
	}

	slices.Sort(names)

	return fmt.Errorf("%q is no delay: there are %s", name, strings.Join(names, ", "))
}

// snake is a Go name as it is written elsewhere: ExternalIP is external_ip.
func snake(name string) string {
	var b strings.Builder

	was := true // upper case

	for _, r := range name {
		is := unicode.IsUpper(r)
		if is && !was {
			b.WriteByte('_')
		}

		b.WriteRune(unicode.ToLower(r))

		was = is
	}

	return b.String()
}
