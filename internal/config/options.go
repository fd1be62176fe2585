package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// option is one thing that can be set. Its flag and variable are promises:
// users' units, manifests and compose files name them.
type option struct {
	flag, env string
	kind      string // what the help calls the value
	help      string
	def       string
	secret    bool
	required  bool
	// field is where the value lives: *string, *Secret, *int, or a
	// pointer with a String method.
	field func(*Config) any
	// read checks and stores the text; nil takes it as it is.
	read func(c *Config, text string) error
}

func (o option) shown(c *Config) string {
	switch v := o.field(c).(type) {
	case *string:
		return *v
	case *Secret:
		return v.String()
	case *int:
		return fmt.Sprint(*v)
	case fmt.Stringer:
		return v.String()
	default:
		return ""
	}
}

// fileFlag and fileEnv name the file that a secret may come from.
func (o option) fileFlag() string { return o.flag + "-file" }
func (o option) fileEnv() string  { return o.env + "_FILE" }

// label names all that may set the option, for errors.
func (o option) label() string {
	if o.secret {
		return strings.Join([]string{"--" + o.fileFlag(), o.env, o.fileEnv()}, " / ")
	}

	return "--" + o.flag + " / " + o.env
}

// options are in the order of the reference.
func options() []option {
	return slices.Concat(omniOptions(), oxideOptions(), leaseOptions(), imageOptions(), workOptions(), networkOptions())
}

func omniOptions() []option {
	return []option{
		{
			flag: "omni-endpoint", env: "OMNI_ENDPOINT", kind: "url", required: true,
			help:  "URL of Omni: https://HOST[:PORT], or http:// or grpc:// without TLS",
			field: func(c *Config) any { return &c.Omni.Endpoint },
			read:  readOmniEndpoint,
		},
		{
			flag: "omni-service-account-key", env: "OMNI_SERVICE_ACCOUNT_KEY", kind: "key", required: true, secret: true,
			help:  "Service-account key of the infrastructure provider, as 'omnictl infraprovider create' prints it",
			field: func(c *Config) any { return &c.Omni.Key },
		},
		{
			flag: "provider-id", env: "PROVIDER_ID", kind: "id", def: "oxide", required: true,
			help:  "ID of the infrastructure provider in Omni, a DNS label; machine classes name it",
			field: func(c *Config) any { return &c.Provider.ID },
			read:  readProviderID,
		},
		{
			flag: "provider-name", env: "PROVIDER_NAME", kind: "text", def: "Oxide", required: true,
			help:  "Name of the provider that Omni shows",
			field: func(c *Config) any { return &c.Provider.Name },
			read:  oneLine(func(c *Config) *string { return &c.Provider.Name }),
		},
		{
			flag: "provider-description", env: "PROVIDER_DESCRIPTION", kind: "text", def: "Talos machines on an Oxide rack",
			help:  "Description of the provider that Omni shows",
			field: func(c *Config) any { return &c.Provider.Description },
			read:  oneLine(func(c *Config) *string { return &c.Provider.Description }),
		},
	}
}

func oxideOptions() []option {
	return []option{
		{
			flag: "oxide-host", env: "OXIDE_HOST", kind: "url",
			help:  "URL of the silo's API, or its host name for https; with a token, instead of a profile",
			field: func(c *Config) any { return &c.Oxide.Host },
			read:  readOxideHost,
		},
		{
			flag: "oxide-token", env: "OXIDE_TOKEN", kind: "token", secret: true,
			help:  "Device token for the silo's API",
			field: func(c *Config) any { return &c.Oxide.Token },
		},
		{
			flag: "oxide-profile", env: "OXIDE_PROFILE", kind: "name",
			help:  "Profile in the Oxide CLI's credentials.toml, instead of host and token",
			field: func(c *Config) any { return &c.Oxide.Profile },
			read:  readProfile,
		},
		{
			flag: "oxide-config-dir", env: "OXIDE_CONFIG_DIR", kind: "dir",
			help:  "Directory of the Oxide CLI's files, for the profile; empty for ~/.config/oxide",
			field: func(c *Config) any { return &c.Oxide.ConfigDir },
		},
	}
}

func workOptions() []option {
	return []option{
		{
			flag: "image-factory-url", env: "IMAGE_FACTORY_URL", kind: "url",
			help:  "URL of the image factory that Talos images come from; empty for the one that Omni names",
			field: func(c *Config) any { return &c.Factory.URL },
			read:  readFactoryURL,
		},
		{
			flag: "provisioner-concurrency", env: "PROVISIONER_CONCURRENCY", kind: "number", def: "10", required: true,
			help:  "Requests worked on at once, 1 to 100",
			field: func(c *Config) any { return &c.Concurrency },
			read:  number(1, 100, func(c *Config) *int { return &c.Concurrency }),
		},
		{
			flag: "max-creates", env: "MAX_CREATES", kind: "number", def: "4", required: true,
			help:  "Creates in the rack at once, 1 to 100, and never more than half of the requests worked on",
			field: func(c *Config) any { return &c.MaxCreates },
			read:  number(1, 100, func(c *Config) *int { return &c.MaxCreates }),
		},
		{
			flag: "settle-time", env: "SETTLE_TIME", kind: "duration", def: "2m", required: true,
			help:  "How long the outcome of a call to the rack without an answer counts as unknown, 1s to 24h",
			field: func(c *Config) any { return &c.SettleTime },
			read:  duration(func(c *Config) *time.Duration { return &c.SettleTime }),
		},
		{
			flag: "scratch-grace", env: "SCRATCH_GRACE", kind: "duration", def: "2m", required: true,
			help:  "How long scratch objects of an importing process that shows no sign of life are left alone, 1s to 24h",
			field: func(c *Config) any { return &c.ScratchGrace },
			read:  duration(func(c *Config) *time.Duration { return &c.ScratchGrace }),
		},
		{
			flag: "janitor", env: "JANITOR", kind: "mode", def: JanitorOn, required: true,
			help:  "What is done about orphans, objects whose machine request is gone, and unused images: off, dry-run (log them) or on (remove them)",
			field: func(c *Config) any { return &c.Janitor },
			read:  readJanitor,
		},
		{
			flag: "janitor-grace", env: "JANITOR_GRACE", kind: "duration", def: "10m", required: true,
			help:  "How long something must have been an orphan before it is removed, 1s to 24h",
			field: func(c *Config) any { return &c.JanitorGrace },
			read:  duration(func(c *Config) *time.Duration { return &c.JanitorGrace }),
		},
		{
			flag: "join-time", env: "JOIN_TIME", kind: "duration", def: "15m", required: true,
			help:  "How long after its start a machine may be unknown to Omni before that is told, 1s to 24h",
			field: func(c *Config) any { return &c.JoinTime },
			read:  duration(func(c *Config) *time.Duration { return &c.JoinTime }),
		},
		{
			flag: "shutdown-grace", env: "SHUTDOWN_GRACE", kind: "duration", def: "25s", required: true,
			help:  "How long the daemon may take to end after SIGTERM, 1s to 24h; less than what a supervisor kills it after",
			field: func(c *Config) any { return &c.ShutdownGrace },
			read:  duration(func(c *Config) *time.Duration { return &c.ShutdownGrace }),
		},
		{
			flag: "health-address", env: "HEALTH_ADDRESS", kind: "address",
			help:  "HOST:PORT to serve /healthz, /readyz and /metrics on; empty for not at all",
			field: func(c *Config) any { return &c.HealthAddress },
			read:  readHealthAddress,
		},
		{
			flag: "pprof-address", env: "PPROF_ADDRESS", kind: "address",
			help:  "HOST:PORT of this host alone to serve Go's profiles on, such as 127.0.0.1:6060; empty for not at all",
			field: func(c *Config) any { return &c.ProfileAddress },
			read:  readProfileAddress,
		},
		{
			flag: "log-level", env: "LOG_LEVEL", kind: "level", def: "info", required: true,
			help:  "Least level that is logged: debug, info, warn or error",
			field: func(c *Config) any { return &c.Log.Level },
			read:  readLogLevel,
		},
		{
			flag: "log-format", env: "LOG_FORMAT", kind: "format", def: FormatJSON, required: true,
			help:  "json, or console for people",
			field: func(c *Config) any { return &c.Log.Format },
			read:  readLogFormat,
		},
	}
}
