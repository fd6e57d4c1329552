package jsonform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"thread/event"
)

// A reply names the event that it answers in its content, as member reply_to of a JSON
// object. So exports, mirrors and SQL carry it, and filters find it. As a subtype of its
// own it would make a series of each reply, and the index of series is read by every
// search.
const replyMember = "reply_to"

// Reply puts the member reply_to into a content that is a JSON object, and makes one
// with the members reply_to and content of everything else. It refuses a content that
// answers another event.
func Reply(content string, id int64) (string, error) {
	link := `{"` + replyMember + `":` + strconv.FormatInt(id, 10)
	var members map[string]json.RawMessage
	if !strings.HasPrefix(strings.TrimLeft(content, " \t\r\n"), "{") || json.Unmarshal([]byte(content), &members) != nil {
		return string(event.AppendString([]byte(link+`,"content":`), content)) + "}", nil
	}
	if given, ok := members[replyMember]; ok {
		if string(given) != strconv.FormatInt(id, 10) {
			return content, fmt.Errorf("the content has reply_to %s already", given)
		}
		return content, nil
	}
	rest := content[strings.IndexByte(content, '{')+1:]
	if len(members) > 0 {
		link += ","
	}
	return link + rest, nil
}

// Answer returns the text that Reply was given: the content without the envelope,
// where there is one.
func Answer(content string) string {
	var members map[string]json.RawMessage
	var text string
	if json.Unmarshal([]byte(content), &members) == nil && len(members) == 2 && members[replyMember] != nil &&
		bytes.HasPrefix(members["content"], []byte(`"`)) && json.Unmarshal(members["content"], &text) == nil {
		return text
	}
	return content
}

// RepliesTo is the filter of the replies to an event.
func RepliesTo(id int64) string {
	return fmt.Sprintf("json_valid(content) AND json_extract(content, '$.%s') = %d", replyMember, id)
}
