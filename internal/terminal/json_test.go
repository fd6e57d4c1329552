package terminal

import (
	"encoding/json"
	"io"
	"testing"

	"pgregory.net/rapid"

	"thread/event"
)

// TestJSONText: text in reports has the bytes that it has in events.
func TestJSONText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := string(rapid.SliceOf(rapid.OneOf(rapid.SampledFrom([]byte("\\u\"fd28<&\u2028\u2029\x00\x7f\ufffd\n")), rapid.Byte())).Draw(t, "s"))
		got, err := compactJSON(s)
		if err != nil {
			t.Fatal(err)
		}
		if want := string(event.AppendString(nil, s)); string(got) != want {
			t.Fatalf("%q is %s, in an event %s", s, got, want)
		}
	})
}

func TestReportJSON(t *testing.T) {
	type item struct {
		Place string `json:"place"`
		N     int    `json:"n,omitempty"`
	}
	type report struct {
		Count  int      `json:"count"`
		Items  []item   `json:"items"`
		Ranges [][2]int `json:"ranges"`
		Texts  []string `json:"texts"`
		Digest *string  `json:"digest"`
	}
	f := "f"
	for _, tt := range []struct {
		report report
		want   string
	}{
		{report{Items: []item{}, Ranges: [][2]int{}, Texts: []string{}}, `{
  "count": 0,
  "items": [],
  "ranges": [],
  "texts": [],
  "digest": null
}
`},
		{report{2, []item{{"a: {\"b\", [c]}", 1}, {"d", 0}}, [][2]int{{1, 2}, {3, 3}}, []string{"x, y", "z"}, &f}, `{
  "count": 2,
  "items": [
    {"place": "a: {\"b\", [c]}", "n": 1},
    {"place": "d"}
  ],
  "ranges": [[1,2],[3,3]],
  "texts": ["x, y","z"],
  "digest": "f"
}
`},
	} {
		out := Output{W: io.Discard}
		if err := out.ReportJSON(tt.report); err != nil {
			t.Fatal(err)
		}
		if string(out.Buf) != tt.want {
			t.Errorf("got\n%s\nwant\n%s", out.Buf, tt.want)
		}
		var back report
		if err := json.Unmarshal(out.Buf, &back); err != nil {
			t.Error(err)
		}
	}
}
