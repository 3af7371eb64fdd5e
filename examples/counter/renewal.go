package main

import (
	crand "crypto/rand"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"os"
)

const notice = "/proc/gvisor/checkpoint"

// newRandom is a generator with a seed of the kernel's. The functions of math/rand and math/rand/v2 use one in the
// process's memory, which a snapshot copies; crypto/rand asks the kernel each time, whose bytes are never the same twice.
func newRandom() *rand.Rand {
	var seed [32]byte
	// never fails: crypto/rand ends the program if the kernel has no random bytes
	_, _ = crand.Read(seed[:])
	return rand.New(rand.NewChaCha8(seed))
}

// onRestore calls renew each time that this process has been restored. It returns at once outside of gVisor.
func onRestore(renew func()) {
	for {
		event, err := nextEvent()
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		if err != nil {
			log.Fatalf("%s: %v", notice, err)
		}
		if event == "restore\n" {
			renew()
		}
	}
}

// nextEvent waits for the next snapshot: "restore" in the copy, "resume" in a process that just went on.
func nextEvent() (string, error) {
	file, err := os.Open(notice)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	return string(text), err
}
