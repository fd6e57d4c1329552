package serve

import "errors"

func send(string, string) error { return errors.ErrUnsupported }
