"""Proxies: the one that the environment names for a server, and the login that the URL of a proxy has in it.

The environment is `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.
"""

from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment

from urllib3.util import parse_url

from hived_extender.kube.configuration import basic


def environment_proxy(url: str) -> str:
    """The URL of the proxy, "" for none. One without a scheme speaks HTTP."""
    proxies = getproxies_environment()
    proxy = proxies.get(urlsplit(url).scheme) or proxies.get("all", "")
    if not proxy or is_bypassed(url, proxies.get("no", "")):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def login_headers(proxy: str) -> dict[str, str] | None:
    """Headers with the name and the password of a proxy's URL, where these are percent-encoded; None without.

    Raises ValueError or urllib3's LocationParseError if `proxy` is no URL.
    """
    login = parse_url(proxy).auth
    if not login:
        return None
    name, _, password = login.partition(":")
    return {"proxy-authorization": basic(unquote(name), unquote(password))}


def is_bypassed(url: str, no_proxy: str) -> bool:
    """Does a list of names, domains, addresses and networks (`*` for all) name the server of `url`?

    `example.com` and `.example.com` name a domain with all below it, `*.example.com` only what is below it.
    The standard library's own test knows no networks, which clusters list to reach their API server.
    """
    server = urlsplit(url)
    host = (server.hostname or "").lower()
    return any(_is_named(host, server.netloc.lower(), entry.strip().lower()) for entry in no_proxy.split(","))


def _is_named(host: str, host_and_port: str, entry: str) -> bool:
    if entry in ("", "*"):
        return entry == "*"
    if entry.startswith("*."):
        return host.endswith(entry[1:]) or host_and_port.endswith(entry[1:])
    domain = entry.lstrip(".")
    if any(name == domain or name.endswith(f".{domain}") for name in (host, host_and_port)):
        return True
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        return False
