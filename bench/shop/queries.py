"""What the chain wants to know, as a script."""

from __future__ import annotations

from bench.shop.sales import STORES, topic

_STORE = """
CREATE STREAM {topic} (id BIGINT, store STRING, product BIGINT, quantity BIGINT, cents BIGINT)
  TIMESTAMP ts UNIT ms LATENESS 2s
  FROM kafka(servers = '{servers}', topic = '{topic}', on_error = 'skip') AT {store};
CREATE QUERY large_{store} AS SELECT id, cents FROM {topic} WHERE cents > 5000
  INTO postgres(url = '{url}', table = 'large_{store}') ON office AT {store};
CREATE QUERY revenue_{store} AS
  SELECT product, sum(cents * quantity) AS cents, count(*) AS sales, window_start
  FROM {topic}[10s] GROUP BY product
  INTO postgres(url = '{url}', table = 'revenue_{store}') ON office AT {store};
"""
_OFFICE = """
CREATE TABLE product (product BIGINT, name STRING)
  FROM postgres(url = '{url}', table = 'product', refresh = '2s') AT office;
CREATE QUERY sales AS {union} AT office;
CREATE QUERY named AS SELECT s.id, p.name FROM sales AS s, product AS p
  WHERE s.product = p.product INTO postgres(url = '{url}', table = 'named') AT office;
CREATE QUERY revenue AS
  SELECT store, product, sum(cents * quantity) AS cents, count(*) AS sales, window_start
  FROM sales[10s] GROUP BY store, product
  INTO postgres(url = '{url}', table = 'revenue') AT office;
CREATE QUERY ranked AS
  SELECT a.store, a.product, a.cents, a.window_start FROM revenue[1us] AS a, revenue[1us] AS b
  WHERE a.store = b.store AND (b.cents > a.cents OR b.cents = a.cents AND b.product <= a.product)
  AT office;
CREATE QUERY best AS
  SELECT store, product, count(*) AS place, max(window_start) AS begun FROM ranked[1us]
  GROUP BY store, product HAVING count(*) <= 3
  INTO postgres(url = '{url}', table = 'best') AT office;
CREATE QUERY so_far AS
  SELECT store, sum(cents * quantity) AS cents, count(*) AS sales, window_end
  FROM sales[36500d SLIDE 10s] GROUP BY store
  INTO postgres(url = '{url}', table = 'so_far') AT office;
CREATE POCKET Total FROM python(class = 'totals:Total') AT office;
CREATE QUERY totals AS SELECT * FROM takings
  INTO postgres(url = '{url}', table = 'totals') AT office;
"""
SINKS = (
    *(f"{kind}_{store}" for kind in ("large", "revenue") for store in STORES),
    *("named", "revenue", "best", "so_far", "totals"),
)
"""Queries with a table of their name."""
AT_ONCE = (*(f"large_{store}" for store in STORES), "named", "totals")
"""Those that give a row for a sale, and not for a window."""

CLUSTER = """
[defaults]
isolation = "process"
master = "local[1]"

[site.s1]
[site.s2]
[site.s3]
[site.office]
"""


def script(servers: str, url: str) -> str:
    values = {"servers": servers, "url": url}
    stores = [_STORE.format(store=store, topic=topic(store), **values) for store in STORES]
    union = " UNION ALL ".join(f"SELECT * FROM {topic(store)}" for store in STORES)
    return "".join([*stores, _OFFICE.format(union=union, **values)])
