package serve

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"thread/internal/cli"
	"thread/internal/serve"
)

// envToken names the environment variable with the token, for who has no file for
// it. A token is not a flag: every account of the host sees those.
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
		return nil, cli.UsageError(from+" holds no token: "+strings.TrimPrefix(err.Error(), serve.ErrClients.Error()+": "), "write a token into it, or on each line NAME push|read|write|admin TOKEN; thread token add makes one")
	}
	if open { // no refusal: a container's secrets are so, and no other process is in there
		log.Warn("every account of this host can read the token", "file", c.TokenFile.Value)
	}
	return list, nil
}

// proxies reads what --trusted-proxy names.
func proxies(list []string) (all []netip.Prefix, err error) {
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return nil, cli.UsageError(fmt.Sprintf("--trusted-proxy %q is not an address", text), "give an IP address, or a network as 10.0.0.0/8")
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// external reads what --external-url and --base-path say.
func (c *serveCmd) external(o *serve.Options) (err error) {
	switch {
	case c.External.Set && c.BasePath.Set:
		return cli.UsageError("--external-url has a path, so --base-path is not used", "give one of them")
	case (c.External.Set || c.BasePath.Set) && !c.UI:
		return cli.UsageError("--external-url and --base-path are for the pages", "add --ui, or leave them out")
	case c.External.Set:
		if o.External, err = serve.ParseExternal(c.External.Value); err != nil {
			return cli.UsageError(fmt.Sprintf("--external-url %q is not the address of pages", c.External.Value), "give it as https://example.org/thread/")
		}
		o.Base = o.External.Path
	case c.BasePath.Set:
		if o.Base, err = serve.ParseBase(c.BasePath.Value); err != nil {
			return cli.UsageError(fmt.Sprintf("--base-path %q is not the path of pages", c.BasePath.Value), "give it as /thread, and not below /threads")
		}
	}
	return nil
}

// warnPlain warns of tokens that cross a network as they are.
func warnPlain(o *serve.Options) {
	if o.TLS != nil || o.Listen == "" || strings.HasPrefix(o.Listen, "unix:") || serve.Loopback(o.Listen) {
		return
	}
	o.Log.Warn("tokens and events cross the network in clear text: add --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy", "listen", o.Listen)
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
	if err != nil {
		return data, mode, err
	}
	mode = info.Mode().Perm()
	data, err = io.ReadAll(io.LimitReader(f, maxTokenBytes))
	return data, mode, err
}
