// Renders a chart as Helm does, of which Debian has no package: with Go's templates, the functions of Sprig, and Helm's own few that our chart
// uses.
//
//	render CHART RELEASE [VALUES]
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type values = map[string]interface{}

func main() {
	log.SetFlags(0)
	folder, release := os.Args[1], os.Args[2]
	chart, all := read(filepath.Join(folder, "Chart.yaml")), read(filepath.Join(folder, "values.yaml"))
	if len(os.Args) > 3 {
		override(all, read(os.Args[3]))
	}
	base := chart["name"].(string) + "/templates"

	set := template.New("").Option("missingkey=zero").Funcs(sprig.TxtFuncMap())
	set.Funcs(template.FuncMap{
		"include": func(name string, data interface{}) (string, error) {
			var out bytes.Buffer
			err := set.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"toYaml": func(value interface{}) (string, error) {
			text, err := yaml.Marshal(value)
			return strings.TrimSuffix(string(text), "\n"), err
		},
	})
	files, err := filepath.Glob(filepath.Join(folder, "templates", "*"))
	check(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(err)
		_, err = set.New(base + "/" + filepath.Base(file)).Parse(string(text))
		check(err)
	}
	for _, file := range files {
		name := base + "/" + filepath.Base(file)
		if strings.HasPrefix(filepath.Base(file), "_") {
			continue
		}
		fmt.Println("---")
		check(set.ExecuteTemplate(os.Stdout, name, values{
			"Values":   all,
			"Chart":    values{"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]},
			"Release":  values{"Name": release, "Namespace": "default", "Service": "Helm"},
			"Template": values{"Name": name, "BasePath": base},
		}))
	}
}

func read(file string) values {
	text, err := os.ReadFile(file)
	check(err)
	var all values
	check(yaml.Unmarshal(text, &all))
	return all
}

// override puts values over others, map by map.
func override(all, over values) {
	for key, value := range over {
		below, isMap := all[key].(values)
		above, isAlso := value.(values)
		if isMap && isAlso {
			override(below, above)
		} else {
			all[key] = value
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal("render: ", err)
	}
}
