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

// memory is one anonymous mapping, so that its size is exact and Go's collector leaves it alone.
type memory struct {
	mu     sync.Mutex
	bytes  []byte
	source *rand.ChaCha8
}

func newMemory() *memory {
	var seed [32]byte
	copy(seed[:], fmt.Sprintf("%d %d", time.Now().UnixNano(), os.Getpid()))
	return &memory{source: rand.NewChaCha8(seed)}
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
	if kind == "random" {
		_, _ = m.source.Read(pages) // documented never to fail
	} else {
		for i := 0; i < len(pages); i += pageBytes {
			pages[i] = 0
		}
	}
	m.bytes = pages
	return nil
}

// touch reads one byte of each page.
func (m *memory) touch() (pages int, sum uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := 0; i < len(m.bytes); i += pageBytes {
		sum += uint64(m.bytes[i])
		pages++
	}
	return pages, sum
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
