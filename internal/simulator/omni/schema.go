package omni

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v4"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// notANumber is what Omni replaces by null before it validates, wherever it
// stands, since the validator can not bear it.
var notANumber = regexp.MustCompile(`(?i)\.nan`)

// checkProviderData validates provider data, YAML, against a provider's schema,
// which must be JSON. Empty data counts as {}. The error has one line for each
// mistake.
func checkProviderData(provider, schemaText, data string) error {
	schema, err := compileSchema(provider, schemaText)
	if err != nil {
		return fmt.Errorf("failed to load json schema for provider %q: %w", provider, err)
	}

	var value any

	if err := yaml.Unmarshal([]byte(notANumber.ReplaceAllString(data, "null")), &value); err != nil {
		return fmt.Errorf("failed to unmarshal YAML %w", err)
	}

	if value == nil {
		value = map[string]any{}
	}

	err = schema.Validate(value)

	var mistakes *jsonschema.ValidationError
	if !errors.As(err, &mistakes) {
		return err
	}

	lines := make([]string, 0, 4)

	for _, mistake := range leaves(mistakes) {
		lines = append(lines, "- "+describe(mistake))
	}

	slices.Sort(lines)

	return errors.New(strings.Join(lines, "\n"))
}

func compileSchema(provider, text string) (*jsonschema.Schema, error) {
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, err
	}

	name := provider + "-schema.json"

	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(name, document); err != nil {
		return nil, err
	}

	return compiler.Compile(name)
}

// leaves are the mistakes themselves, without what only groups them.
func leaves(err *jsonschema.ValidationError) []*jsonschema.ValidationError {
	switch err.ErrorKind.(type) {
	case *kind.Schema, *kind.Reference, *kind.Group, *kind.AllOf, *kind.AnyOf, *kind.OneOf:
		var all []*jsonschema.ValidationError

		for _, cause := range err.Causes {
			all = append(all, leaves(cause)...)
		}

		if len(all) > 0 {
			return all
		}
	}

	return []*jsonschema.ValidationError{err}
}

func describe(err *jsonschema.ValidationError) string {
	text := err.ErrorKind.LocalizedString(message.NewPrinter(language.English))

	if len(err.InstanceLocation) == 0 {
		return text
	}

	return fmt.Sprintf("%q: %s", strings.Join(err.InstanceLocation, "."), text)
}
