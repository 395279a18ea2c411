package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every block of README.md compiles, runs, and does what is said of it: testdata/readme has what
// they take for given. It needs DATABASE_URL.

var (
	block  = regexp.MustCompile("(?ms)^```go\n(.*?)^```")
	marker = regexp.MustCompile(`(?m)^\s*// README: (.*)$`)
)

func TestReadme(t *testing.T) {
	if said, err := testBlocks(t, readme(t)); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestControlOfReadme is about blocks that were changed: they fail.
func TestControlOfReadme(t *testing.T) {
	for _, change := range []struct{ from, to, says string }{
		{"jobs.Batch(", "jobs.Bach(", "undefined: jobs.Bach"},
		{`Queue:       "mail"`, `Queue:       "post"`, "--- FAIL: TestInserting"},
		{"## A worker\n", "## A worker\n```go\nvar more int\n```\n", "11 of 12"},
	} {
		changed := strings.Replace(readme(t), change.from, change.to, 1)
		if said, err := testBlocks(t, changed); err == nil || !strings.Contains(said+err.Error(), change.says) {
			t.Errorf("%s: %v\n%s", change.to, err, said)
		}
	}
}

func readme(t *testing.T) string {
	if os.Getenv("DATABASE_URL") == "" {
		t.Skip("DATABASE_URL is not set")
	}
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// testBlocks makes a module of the blocks and the package of testdata, and runs its tests.
func testBlocks(t *testing.T, readme string) (said string, err error) {
	source := t.TempDir()
	library, _ := filepath.Abs("..")
	module := strings.ReplaceAll(module, "DIRECTORY", library)
	if err := os.WriteFile(filepath.Join(source, "go.mod"), []byte(module), 0o644); err != nil {
		t.Fatal(err)
	}
	blocks, used := block.FindAllStringSubmatch(readme, -1), map[string]bool{}
	text, err := os.ReadFile("testdata/readme/blocks_test.go")
	if err != nil {
		t.Fatal(err)
	}
	filled := marker.ReplaceAllStringFunc(string(text), func(line string) string {
		part := marker.FindStringSubmatch(line)[1]
		for _, found := range blocks {
			if strings.Contains(found[1], part) {
				used[found[1]] = true
				return "\n" + found[1]
			}
		}
		return line
	})
	if err := os.WriteFile(filepath.Join(source, "blocks_test.go"), []byte(filled), 0o644); err != nil {
		t.Fatal(err)
	}
	if len(used) != len(blocks) {
		return "", fmt.Errorf("%d of %d blocks are tested", len(used), len(blocks))
	}
	test := exec.Command("go", "test", "-mod=mod", "-count=1", ".")
	test.Dir = source
	output, err := test.CombinedOutput()
	return string(output), err
}

const module = `module readme

go 1.24.0

require (
	example.org/jobs v0.1.0
	example.org/jobs/jobsotel v0.1.0
)

replace (
	example.org/jobs => DIRECTORY
	example.org/jobs/jobsotel => DIRECTORY/jobsotel
)
`
