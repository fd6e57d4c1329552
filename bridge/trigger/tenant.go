package trigger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"slices"
	"strings"
)

// tenant returns who a message is of: what its header says, if that is
// believed, else the default. A tenant that is not valid is not believed.
func (t *Tenancy) tenant(m *Message, secrets []string) string {
	claimed := Header(m.Headers, HeaderTenant)
	if !t.Trust || claimed == "" {
		return DefaultTenant
	}
	producer := Header(m.Headers, HeaderProducer)
	if len(t.Producers) > 0 && !slices.Contains(t.Producers, producer) {
		return DefaultTenant
	}
	if len(t.SecretEnvs) == 0 {
		return claimed
	}
	given, err := hex.DecodeString(strings.TrimSpace(Header(m.Headers, HeaderSignature)))
	if err != nil {
		return DefaultTenant
	}
	for _, secret := range secrets {
		if hmac.Equal(given, sign(secret, m.ID, claimed, producer)) {
			return claimed
		}
	}
	return DefaultTenant
}

// secrets returns those of the named environment variables that are set. A host
// rotates a secret by naming two.
func (t *Tenancy) secrets() (list []string) {
	for _, name := range t.SecretEnvs {
		if v := os.Getenv(name); v != "" {
			list = append(list, v)
		}
	}
	return list
}

func sign(secret, id, tenant, producer string) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(id + ":" + tenant + ":" + producer))
	return h.Sum(nil)
}

// Sign returns the signature that header x-tenant-signature must have: the
// HMAC-SHA256 of "id:tenant:producer" in hexadecimal.
func Sign(secret, id, tenant, producer string) string {
	return hex.EncodeToString(sign(secret, id, tenant, producer))
}
