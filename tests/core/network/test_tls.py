import ssl

import certifi
import httpx

from delf.network.tls import default_context


def test_tls_context_trusts_what_httpx_trusts_and_is_built_once(monkeypatch):
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert default_context() is default_context()
    theirs = httpx.create_ssl_context()
    assert default_context().cert_store_stats() == theirs.cert_store_stats()
    assert (default_context().verify_mode, default_context().check_hostname) == (
        ssl.CERT_REQUIRED,
        True,
    )


def test_new_certificate_variable_is_used_without_a_restart(monkeypatch, tmp_path):
    one = tmp_path / "one.pem"
    with open(certifi.where()) as file:
        text = file.read()
    end = "-----END CERTIFICATE-----\n"
    one.write_text(text[text.index("-----BEGIN") : text.index(end)] + end)
    before = default_context()
    with monkeypatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(one))
        assert default_context().cert_store_stats()["x509"] == 1
    assert default_context() is before
