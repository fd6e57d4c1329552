package serve

import "os/exec"

func ownGroup(*exec.Cmd) {}
