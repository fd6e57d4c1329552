package cli

import "context"

// UntilReaderGone returns a context; here the end of a reader is learned from a write.
func (o *Output) UntilReaderGone(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}
