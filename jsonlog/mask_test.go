package jsonlog

import "testing"

func TestMask(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"push: source=self type=message id=1", "push: source=self type=message id=1"},
		{"run --api-key=abc123 --verbose", "run --api-key=*** --verbose"},
		{"API_KEY='abc 1' TOKEN=\"x\" go", "API_KEY='*** 1' TOKEN=\"***\" go"},
		{"curl https://h/?key=a&token=b&page=2", "curl https://h/?key=***&token=***&page=2"},
		{"curl -H 'Authorization: Bearer abc.def' url", "curl -H 'Authorization: Bearer ***' url"},
		{"bearer x, BEARER y", "bearer ***, BEARER ***"},
		{"token=Bearer abc", "token=*** ***"},
		{"password=", "password="},
		{"monkey =1 key = 2", "monkey =1 key = 2"},
		{"İ secret=abc", "İ secret=***"},
	} {
		if got := mask(tt.in); got != tt.want {
			t.Errorf("mask(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}
