"""The proxy that the environment names for a server: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, and `NO_PROXY`."""

from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit
from urllib.request import getproxies_environment


def environment_proxy(url: str) -> str:
    """The URL of the proxy, "" for none."""
    proxies = getproxies_environment()
    proxy = proxies.get(urlsplit(url).scheme) or proxies.get("all", "")
    return "" if is_bypassed(url, proxies.get("no", "")) else proxy


def is_bypassed(url: str, no_proxy: str) -> bool:
    """Does a list of names, domains, addresses and networks (`*` for all) name the server of `url`?

    The standard library's own test knows no networks, which clusters list to reach their API server.
    """
    server = urlsplit(url)
    host = (server.hostname or "").lower()
    return any(_is_named(host, server.netloc.lower(), entry.strip().lower()) for entry in no_proxy.split(","))


def _is_named(host: str, host_and_port: str, entry: str) -> bool:
    if entry in ("", "*"):
        return entry == "*"
    domain = entry.lstrip(".")
    if any(name == domain or name.endswith(f".{domain}") for name in (host, host_and_port)):
        return True
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        return False
