//go:build unix

package mixedfleet

import (
	"archive/zip"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A release that is not a tag of this repository comes from the module proxy.
func TestSourcesOfAVersionComeFromTheProxy(t *testing.T) {
	const version = "v0.0.9-test"
	proxy, modcache := t.TempDir(), t.TempDir()
	dir := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"go.mod": "module " + module + "\n\ngo 1.25\n", "holdfast.go": "package holdfast\n"}
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for name, text := range files {
		f, err := w.Create(module + "@" + version + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for ext, text := range map[string]string{
		".info": `{"Version": "` + version + `"}`, ".mod": files["go.mod"], ".zip": archive.String(),
	} {
		if err := os.WriteFile(filepath.Join(dir, version+ext), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{
		"GOPROXY": "file://" + proxy, "GOMODCACHE": modcache, "GONOSUMDB": module, "GOFLAGS": "",
	} {
		t.Setenv(name, value)
	}
	t.Cleanup(func() { _, _ = output(exec.Command("go", "clean", "-modcache")) }) // its files are read-only

	tree := filepath.Join(t.TempDir(), "tree")
	if err := sources(tree, version); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(tree, "holdfast.go"))
	if err != nil || string(text) != files["holdfast.go"] {
		t.Errorf("%q, %v", text, err)
	}
}

func TestUnknownRevisionIsAnError(t *testing.T) {
	t.Parallel()
	err := sources(filepath.Join(t.TempDir(), "tree"), "0123456789abcdef")
	if !errors.Is(err, errUnknown) {
		t.Error(err)
	}
}

// A clone without history, before there is a release, mixes the present code with itself.
func TestWorkerIsBuiltFromThePresentSources(t *testing.T) {
	t.Parallel()
	tree := filepath.Join(t.TempDir(), "tree")
	if err := presentSources(tree); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]bool{"go.mod": true, "locker/mutex.go": true, "etcdtest": false, ".git": false} {
		if exists(filepath.Join(tree, file)) != want {
			t.Errorf("%s is copied: %v, want %v", file, !want, want)
		}
	}
}
