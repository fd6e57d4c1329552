package history

import "testing"

// TestSetMember: members are added to any value that has a JSON form, and to none.
func TestSetMember(t *testing.T) {
	for object, want := range map[string]string{
		"": `{"a":1}`, "null": `{"a":1}`, " null ": `{"a":1}`, "{}": `{"a":1}`, `{"b":2, "a":3}`: `{"a":1,"b":2}`,
		"7": `{"a":1,"value":7}`, "[]": `{"a":1,"value":[]}`, `"x"`: `{"a":1,"value":"x"}`,
	} {
		if got, err := SetMember(raw(object), "a", 1); err != nil || string(got) != want {
			t.Errorf("%q: %s, %v, want %s", object, got, err, want)
		}
	}
	row := RunRow{Metadata: raw("null")}
	if err := SetJob(&row, Job{Retries: 2}); err != nil {
		t.Error(err)
	}
	if job, is := JobOf(&row); !is || job.Retries != 2 {
		t.Errorf("%s", row.Metadata)
	}
}
