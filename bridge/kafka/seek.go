package kafka

import (
	"context"
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"thread/bridge/trigger"
)

// Seek implements trigger.Seeker.
func (k *source) Seek(ctx context.Context, _ trigger.State, to trigger.Place) ([]trigger.Write, error) {
	o, err := options(k.s)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(o...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if err := reach(ctx, cl, k.s, "client"); err != nil {
		return nil, err
	}
	k.mu.Lock()
	k.cl = cl
	k.mu.Unlock()
	defer func() { k.mu.Lock(); k.cl = nil; k.mu.Unlock() }()
	if err := k.generation(ctx); err != nil {
		return nil, err
	}
	admin := kadm.NewClient(cl)
	var listed kadm.ListedOffsets
	switch to.Name {
	case "start":
		listed, err = admin.ListStartOffsets(ctx, k.s.Queue)
	case "end":
		listed, err = admin.ListEndOffsets(ctx, k.s.Queue)
	default:
		listed, err = admin.ListOffsetsAfterMilli(ctx, to.At.UnixMilli(), k.s.Queue)
	}
	if err != nil {
		return nil, err
	}
	if err = listed.Error(); err != nil {
		return nil, err
	}
	var ws []trigger.Write
	offsets := kadm.Offsets{}
	listed.Each(func(l kadm.ListedOffset) {
		offsets.AddOffset(l.Topic, l.Partition, l.Offset, -1)
		ws = append(ws, trigger.Write{Key: k.position(l.Partition), Value: binary.BigEndian.AppendUint64(nil, uint64(l.Offset))})
	})
	rs, err := admin.CommitOffsets(ctx, k.s.Group, offsets)
	if err != nil {
		return ws, err
	}
	err = rs.Error()
	return ws, err
}
