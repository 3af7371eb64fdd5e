package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

const sparseStep = 16 * mebibyte

// files are those that the program keeps on disk or open.
type files struct {
	mu         sync.Mutex
	generation int
	// by folder: paths of the last churn
	churned  map[string][]string
	opened   []*os.File
	unnamed  []*os.File
	sparsely []string
	source   *rand.ChaCha8
}

func newFiles() *files {
	return &files{churned: map[string][]string{}, source: source()}
}

func folder(r *http.Request) (string, error) {
	path := r.URL.Query().Get("path")
	if path == "" {
		return "", fmt.Errorf("path must be a folder, as in %s?path=/tmp", r.URL.Path)
	}
	return path, os.MkdirAll(path, 0o755)
}

func (f *files) put(path string, bytes int, kind string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	chunk := make([]byte, mebibyte)
	for bytes > 0 {
		part := chunk[:min(bytes, len(chunk))]
		write(part, kind, f.source)
		if _, err := file.Write(part); err != nil {
			file.Close()
			return nil, err
		}
		bytes -= len(part)
	}
	return file, nil
}

func (f *files) path(dir, kind string, i int) string {
	return filepath.Join(dir, fmt.Sprintf("glutton-%s-%d-%d", kind, f.generation, i))
}

func (f *files) churn(w http.ResponseWriter, r *http.Request) error {
	dir, err := folder(r)
	if err != nil {
		return err
	}
	mib, err := number(r, "mib")
	if err != nil {
		return err
	}
	count, err := number(r, "files")
	if err != nil {
		return err
	}
	if count == 0 {
		return errors.New("files must be 1 or more")
	}
	kind, err := kindOf(r)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.generation++
	var paths []string
	for i := range count {
		path := f.path(dir, "disk", i)
		file, err := f.put(path, mib*mebibyte/count, kind)
		if err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
		paths = append(paths, path)
	}
	for _, path := range f.churned[dir] {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	f.churned[dir] = paths
	answer(w, map[string]any{"files": count, "mib": mib})
	return nil
}

func (f *files) open(w http.ResponseWriter, r *http.Request) error {
	dir, err := folder(r)
	if err != nil {
		return err
	}
	n, err := number(r, "n")
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.generation++
	for i := range n {
		file, err := f.put(f.path(dir, "open", i), pageBytes, "random")
		if err != nil {
			return err
		}
		f.opened = append(f.opened, file)
	}
	answer(w, map[string]any{"open": len(f.opened)})
	return nil
}

func (f *files) unlinked(w http.ResponseWriter, r *http.Request) error {
	dir, err := folder(r)
	if err != nil {
		return err
	}
	mib, err := number(r, "mib")
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.generation++
	path := f.path(dir, "unlinked", 0)
	file, err := f.put(path, mib*mebibyte, "random")
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	f.unnamed = append(f.unnamed, file)
	answer(w, map[string]any{"unlinked": len(f.unnamed)})
	return nil
}

func (f *files) sparse(w http.ResponseWriter, r *http.Request) error {
	dir, err := folder(r)
	if err != nil {
		return err
	}
	mib, err := number(r, "mib")
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.generation++
	path := f.path(dir, "sparse", 0)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	size := int64(mib) * mebibyte
	if err := file.Truncate(size); err != nil {
		return err
	}
	page := make([]byte, pageBytes)
	for at := int64(0); at+pageBytes <= size; at += sparseStep {
		write(page, "random", f.source)
		if _, err := file.WriteAt(page, at); err != nil {
			return err
		}
	}
	f.sparsely = append(f.sparsely, path)
	answer(w, map[string]any{"path": path, "mib": mib})
	return nil
}

// content is a number of things and a digest of all their bytes.
type content struct {
	Count  int    `json:"count"`
	Bytes  int64  `json:"bytes"`
	Sha256 string `json:"sha256"`
	sum    hash.Hash
}

func newContent() *content {
	return &content{sum: sha256.New()}
}

func (c *content) add(reader io.Reader) error {
	n, err := io.Copy(c.sum, reader)
	c.Count++
	c.Bytes += n
	return err
}

func (c *content) addPath(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return c.add(file)
}

// addOpen reads through the descriptor that is held, not by a name.
func (c *content) addOpen(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return c.add(io.NewSectionReader(file, 0, info.Size()))
}

func (c *content) done() *content {
	c.Sha256 = hex.EncodeToString(c.sum.Sum(nil))
	return c
}

func (f *files) holdings() (map[string]*content, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	disk, opened, unnamed, sparse := newContent(), newContent(), newContent(), newContent()
	var paths []string
	for _, each := range f.churned {
		paths = append(paths, each...)
	}
	slices.Sort(paths)
	for _, path := range paths {
		if err := disk.addPath(path); err != nil {
			return nil, err
		}
	}
	for _, file := range f.opened {
		if err := opened.addOpen(file); err != nil {
			return nil, err
		}
	}
	for _, file := range f.unnamed {
		if err := unnamed.addOpen(file); err != nil {
			return nil, err
		}
	}
	for _, path := range f.sparsely {
		if err := sparse.addPath(path); err != nil {
			return nil, err
		}
	}
	return map[string]*content{
		"disk": disk.done(), "open": opened.done(), "unlinked": unnamed.done(), "sparse": sparse.done(),
	}, nil
}
