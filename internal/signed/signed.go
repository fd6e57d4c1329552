// Package signed gives clients a text in place of a number that they could guess: the
// number and its signature. The text needs no state, so it counts as long as its key.
package signed

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
)

const (
	keyBytes = 32
	macBytes = 16 // of the signature that a text has
)

// Key signs numbers.
type Key []byte

// NewKey returns a random key.
func NewKey() Key {
	k := make(Key, keyBytes)
	_, _ = rand.Read(k) // never fails
	return k
}

// Keeper keeps a key, or more, for the next process. Load returns nil where there is nothing.
type Keeper interface {
	Load() []byte
	Save(data []byte)
}

// KeptKey returns the key that keeper has, or a new one. Without a keeper (nil) the key
// ends with the process.
func KeptKey(keeper Keeper) Key {
	if keeper == nil {
		return NewKey()
	}
	if k := Key(keeper.Load()); len(k) == keyBytes {
		return k
	}
	k := NewKey()
	keeper.Save(k)
	return k
}

// Text returns the text of number, which belongs to an owner, as a thread and a consumer.
func (k Key) Text(number int64, owner ...string) string {
	return strconv.FormatInt(number, 10) + "." + k.sign(number, owner)
}

// Number returns the number of a text. It reports false for a text that this key did not
// make for the same owner.
func (k Key) Number(text string, owner ...string) (int64, bool) {
	digits, mac, _ := strings.Cut(text, ".")
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || subtle.ConstantTimeCompare([]byte(mac), []byte(k.sign(number, owner))) != 1 {
		return 0, false
	}
	return number, true
}

// sign signs each part with its length, so that no two owners have one signature.
func (k Key) sign(number int64, owner []string) string {
	text := binary.BigEndian.AppendUint64(nil, uint64(number))
	for _, part := range owner {
		text = append(binary.BigEndian.AppendUint64(text, uint64(len(part))), part...)
	}
	mac := hmac.New(sha256.New, k)
	_, _ = mac.Write(text) // never fails
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:macBytes])
}
