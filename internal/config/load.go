package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// maxSecret is the most bytes of a secret's file that are read: the largest
// key that Omni makes has less than 2 KiB.
const maxSecret = 64 << 10

// Mistakes is the error for a configuration that is wrong: all that is wrong
// with it, each naming flag and variable, on a line of its own.
type Mistakes []string

// Error returns the mistakes, one a line.
func (m Mistakes) Error() string { return strings.Join(m, "\n") }

// Lines returns the mistakes.
func (m Mistakes) Lines() []string { return m }

// Loader loads a Config once the flags are parsed.
type Loader struct {
	values  map[string]*value // by flag
	options []option
	rules   []func(*Config, map[string]bool) error
	now     func() time.Time
}

// value is a flag's text. It takes any: what is wrong with it is told
// together with all other mistakes.
type value struct {
	text, kind string
	set        bool
}

func (v *value) String() string { return v.text }
func (v *value) Type() string   { return v.kind }

func (v *value) Set(text string) error {
	v.text, v.set = text, true

	return nil
}

// Register adds the flags.
func Register(flags *pflag.FlagSet) *Loader {
	l := &Loader{options: options(), now: time.Now}
	l.rules = []func(*Config, map[string]bool) error{l.omniKey, oxideAccess, leaseTimes, factoryAccess}
	l.register(flags)

	return l
}

// RegisterRack adds the flags of what a command needs that talks to the rack
// alone. Nothing else is read or asked for.
func RegisterRack(flags *pflag.FlagSet) *Loader {
	wanted := []string{
		"oxide-host", "oxide-token", "oxide-profile", "oxide-config-dir", "ca-file", "oxide-ca-file", "oxide-insecure",
		"rack-calls", "rack-changes", "log-level", "log-format",
	}
	l := &Loader{now: time.Now, rules: []func(*Config, map[string]bool) error{oxideAccess}}

	for _, flag := range wanted {
		l.options = append(l.options, find(flag))
	}

	l.register(flags)

	return l
}

func (l *Loader) register(flags *pflag.FlagSet) {
	l.values = map[string]*value{}

	for _, o := range l.options {
		name, kind, help := o.flag, o.kind, o.help+" ($"+o.env+")"
		if o.secret {
			name, kind = o.fileFlag(), "file"
			help = "File with: " + o.help + " (also $" + o.env + ", or a file named by $" + o.fileEnv() + ")"
		}

		v := &value{text: o.def, kind: kind}
		l.values[o.flag] = v
		flags.Var(v, name, help)
	}
}

// Load reads and checks all options. The error is of type Mistakes and has
// them all. What lookupEnv returns is never shown if it is a secret.
func (l *Loader) Load(lookupEnv func(string) (string, bool)) (Config, error) {
	var (
		c        Config
		mistakes Mistakes
	)

	wrong := map[string]bool{} // flags of options that have a mistake
	add := func(o option, err error) {
		wrong[o.flag] = true

		mistakes = append(mistakes, fmt.Sprintf("%s: %s", o.label(), err))
	}

	for _, o := range l.options {
		text, file, err := l.text(o, lookupEnv)
		if o.secret {
			*c.fileOf(o.flag) = file
		}

		switch {
		case err != nil:
			add(o, err)
		case text == "" && o.required:
			add(o, errors.New("is not set"))
		case text == "":
		case o.secret:
			*o.field(&c).(*Secret) = Secret(text) //nolint:errcheck,forcetypeassert // the table's secrets are of this type
		case o.read == nil:
			*o.field(&c).(*string) = text //nolint:errcheck,forcetypeassert // the table's plain texts are of this type
		default:
			if err = o.read(&c, text); err != nil {
				add(o, err)
			}
		}
	}

	for _, rule := range l.rules {
		if err := rule(&c, wrong); err != nil {
			mistakes = append(mistakes, err.Error())
		}
	}

	if len(mistakes) > 0 {
		return Config{}, mistakes
	}

	return c, nil
}

// text returns what the option is set to: by flag, else by variable, else by
// default; and the file that it comes from, if one does.
func (l *Loader) text(o option, lookupEnv func(string) (string, bool)) (text, path string, err error) {
	flag := l.values[o.flag]
	plain, _ := lookupEnv(o.env)
	plain = strings.TrimSpace(plain)

	if !o.secret {
		switch {
		case flag.set:
			return strings.TrimSpace(flag.text), "", nil
		case plain != "":
			return plain, "", nil
		default:
			return o.def, "", nil
		}
	}

	file, _ := lookupEnv(o.fileEnv())

	switch {
	case flag.set && flag.text != "":
		text, err = readSecret(flag.text)

		return text, flag.text, err
	case plain != "" && file != "":
		return "", "", fmt.Errorf("both %s and %s are set, only one may be", o.env, o.fileEnv())
	case file != "":
		text, err = readSecret(file)

		return text, file, err
	default:
		return plain, "", nil
	}
}

// readSecret returns what is in the file, without the white space around it.
// The path may be the secret itself, set by mistake where its file belongs, so
// it is told only if it begins like a path.
func readSecret(path string) (string, error) {
	told := "the file"
	if pathLike.MatchString(path) {
		told = path
	}

	info, err := os.Stat(path)

	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("reading the secret: %s can not be found; is this the secret and not the path of its file?", told)
	case err != nil:
		return "", fmt.Errorf("reading the secret: %s: %w", told, cause(err))
	case info.IsDir():
		return "", fmt.Errorf("reading the secret: %s is a directory", told)
	case info.Size() > maxSecret:
		return "", fmt.Errorf("reading the secret: %s has %d bytes, more than any secret", told, info.Size())
	}

	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the secret: %s: %w", told, cause(err))
	}

	switch text := strings.TrimSpace(string(content)); {
	case text == "":
		return "", fmt.Errorf("reading the secret: %s is empty", told)
	case strings.ContainsAny(text, "\r\n"):
		return "", fmt.Errorf("reading the secret: %s has more than one line", told)
	default:
		return text, nil
	}
}

var pathLike = regexp.MustCompile(`^(/|\./|\.\./|[A-Za-z]:)[^\n]{0,250}$`)

// cause is an error of the file system without the path.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}

	return err
}
