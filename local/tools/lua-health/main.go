// Runs a health script as Argo CD's util/lua does: in gopher-lua, with the object as global `obj`, one second to end,
// and of Lua's libraries only base, table, package and a harmless part of os.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	lua "github.com/yuin/gopher-lua"
	luajson "layeh.com/gopher-json"
)

const usage = `substrate-lua-health SCRIPT   reads a JSON array of objects from stdin, prints one health for each
substrate-lua-health version`

type health struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func open(l *lua.LState) error {
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}} {
		if err := l.CallByParam(lua.P{Fn: l.NewFunction(library.open), Protect: true}, lua.LString(library.name)); err != nil {
			return err
		}
	}
	return nil
}

func run(script string, object json.RawMessage) (*health, error) {
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	if err := open(l); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l.SetContext(ctx)
	obj, err := luajson.Decode(l, object)
	if err != nil {
		return nil, err
	}
	l.SetGlobal("obj", obj)
	if err := l.DoString(script); err != nil {
		return nil, err
	}
	answer, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		return nil, fmt.Errorf("the script returned %s, not a table", l.Get(-1).Type())
	}
	text, err := luajson.Encode(answer)
	if err != nil {
		return nil, err
	}
	found := &health{}
	return found, json.Unmarshal(text, found)
}

func answer(path string) error {
	script, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var objects []json.RawMessage
	if err := json.Unmarshal(input, &objects); err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	all := make([]*health, len(objects))
	for i, object := range objects {
		if all[i], err = run(string(script), object); err != nil {
			return fmt.Errorf("object %d: %w", i, err)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if os.Args[1] == "version" {
		fmt.Println("substrate-lua-health 1")
		return
	}
	if err := answer(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "substrate-lua-health:", err)
		os.Exit(1)
	}
}
