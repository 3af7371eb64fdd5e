package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	pageBytes = 4096
	mebibyte  = 1 << 20
)

// source gives random bytes that differ from those of any other process, and of a copy started later.
func source() *rand.ChaCha8 {
	var seed [32]byte
	copy(seed[:], fmt.Sprintf("%d %d", time.Now().UnixNano(), os.Getpid()))
	return rand.NewChaCha8(seed)
}

// write puts content of a kind over all bytes, page by page.
func write(bytes []byte, kind string, source *rand.ChaCha8) {
	if kind == "random" {
		_, _ = source.Read(bytes) // documented never to fail
		return
	}
	for begin := 0; begin < len(bytes); begin += pageBytes {
		page := bytes[begin:min(begin+pageBytes, len(bytes))]
		clear(page)
		if kind == "half" {
			_, _ = source.Read(page[:len(page)/2])
		}
	}
}

// memory is one anonymous mapping, so that its size is exact and Go's collector leaves it alone.
type memory struct {
	mu     sync.Mutex
	bytes  []byte
	source *rand.ChaCha8
}

func newMemory() *memory {
	return &memory{source: source()}
}

func mapPages(mib int) ([]byte, error) {
	if mib == 0 {
		return nil, nil
	}
	flags := syscall.MAP_PRIVATE | syscall.MAP_ANONYMOUS
	return syscall.Mmap(-1, 0, mib*mebibyte, syscall.PROT_READ|syscall.PROT_WRITE, flags)
}

// hold replaces what is held. Every page is written, zero ones too, so that all of it is charged.
func (m *memory) hold(mib int, kind string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bytes != nil {
		if err := syscall.Munmap(m.bytes); err != nil {
			return err
		}
		m.bytes = nil
	}
	pages, err := mapPages(mib)
	if err != nil {
		return err
	}
	write(pages, kind, m.source)
	m.bytes = pages
	return nil
}

// touch reads one byte of each step.
func (m *memory) touch(step int) (touched int, sum uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := 0; i < len(m.bytes); i += step {
		sum += uint64(m.bytes[i])
		touched++
	}
	return touched, sum
}

// churn overwrites as many pages as mib MiB have, at even distances over all that is held, so that the changes of
// a small share lie as scattered as those of real programs.
func (m *memory) churn(mib int, kind string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := len(m.bytes) / pageBytes
	wanted := mib * mebibyte / pageBytes
	if wanted > held {
		return fmt.Errorf("only %d MiB are held", len(m.bytes)/mebibyte)
	}
	for i := 0; i < wanted; i++ {
		begin := i * held / wanted * pageBytes
		write(m.bytes[begin:begin+pageBytes], kind, m.source)
	}
	return nil
}

// dirty overwrites the first mib MiB with new random bytes.
func (m *memory) dirty(mib int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mib*mebibyte > len(m.bytes) {
		return fmt.Errorf("only %d MiB are held", len(m.bytes)/mebibyte)
	}
	_, _ = m.source.Read(m.bytes[:mib*mebibyte]) // documented never to fail
	return nil
}

// digest is the sha256 of all that is held.
func (m *memory) digest() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := sha256.Sum256(m.bytes)
	return hex.EncodeToString(sum[:])
}

func (m *memory) sizeMib() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.bytes) / mebibyte
}

// exhaust takes memory until the kernel ends it.
func exhaust() error {
	for {
		pages, err := mapPages(16)
		if err != nil {
			return err
		}
		for i := 0; i < len(pages); i += pageBytes {
			pages[i] = 1
		}
	}
}
