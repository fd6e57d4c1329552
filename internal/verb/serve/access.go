package serve

import (
	"io"
	"log/slog"
	"os"
	"strings"

	"thread/internal/cli"
	"thread/internal/serve"
)

// envToken names the environment variable with the token, for who has no file for
// it. A token is no flag: every account of the host sees those.
const envToken = "THREAD_TOKEN"

// clients returns who may come, by the token file or else the environment; none where
// neither says. Handlers do not inherit a token.
func (c *serveCmd) clients(log *slog.Logger) ([]serve.Client, error) {
	from, text, open := envToken, os.Getenv(envToken), false
	_ = os.Unsetenv(envToken)
	if c.TokenFile.Set {
		from = "--token-file " + c.TokenFile.Value
		data, mode, err := readSmall(c.TokenFile.Value)
		if err != nil {
			return nil, cli.LogicError("--token-file: "+err.Error(), "name a file that can be read")
		}
		if text = string(data); len(data) == maxTokenBytes {
			return nil, cli.UsageError(from+" is too long", "give a file of less than 64 KiB")
		}
		open = mode&0o004 != 0
	} else if text == "" || !c.Listen.Set {
		return nil, nil
	}
	list, err := serve.ParseClients(text)
	if err != nil {
		return nil, cli.UsageError(from+" holds no token: "+strings.TrimPrefix(err.Error(), serve.ErrClients.Error()+": "), "write a token into it, or on each line NAME read|write|admin TOKEN, in visible ASCII characters")
	}
	if open { // no refusal: a container's secrets are so, and nobody else is in there
		log.Warn("every account of this host can read the token", "file", c.TokenFile.Value)
	}
	return list, nil
}

// readCertificate reads what --tls-cert and --tls-key name.
func (c *serveCmd) readCertificate(o *serve.Options) (err error) {
	switch {
	case c.TLSCert.Set != c.TLSKey.Set:
		return cli.UsageError("--tls-cert and --tls-key go together", "give both, or none of them")
	case !c.TLSCert.Set:
		return nil
	case !c.Listen.Set:
		return cli.UsageError("--tls-cert is for --listen, which is missing", "add --listen ADDRESS")
	}
	if c.certificate, err = serve.LoadCertificate(c.TLSCert.Value, c.TLSKey.Value); err != nil {
		return cli.LogicError("--tls-cert: "+err.Error(), "name PEM files of a certificate and its key")
	}
	o.TLS = c.certificate.Config()
	return nil
}

// reload reads the tokens and the certificate again. What is wrong changes nothing.
func (c *serveCmd) reload(s *serve.Server, log *slog.Logger) {
	if c.TokenFile.Set {
		list, err := c.clients(log)
		if err != nil {
			log.Error("tokens not reloaded", "error", err)
		} else {
			s.SetClients(list)
			log.Info("tokens reloaded", "clients", len(list))
		}
	}
	if c.certificate != nil {
		if err := c.certificate.Reload(); err != nil {
			log.Error("certificate not reloaded", "error", err)
			return
		}
		log.Info("certificate reloaded")
	}
}

// maxTokenBytes is more than a hundred clients need.
const maxTokenBytes = 64 << 10

func readSmall(path string) (data []byte, mode os.FileMode, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		mode = info.Mode().Perm()
		data, err = io.ReadAll(io.LimitReader(f, maxTokenBytes))
	}
	return data, mode, err
}
