"""TPC-H's tables in small, and its 22 queries. Their parameters are chosen so that of so few rows
something is left."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal

import pyarrow as pa

MONEY, WHOLE, DAY, TEXT = pa.decimal128(15, 2), pa.int64(), pa.date32(), pa.string()
SCHEMAS: Mapping[str, pa.Schema] = {
    "region": pa.schema([("r_regionkey", WHOLE), ("r_name", TEXT)]),
    "nation": pa.schema([("n_nationkey", WHOLE), ("n_name", TEXT), ("n_regionkey", WHOLE)]),
    "supplier": pa.schema(
        [("s_suppkey", WHOLE), ("s_name", TEXT), ("s_address", TEXT), ("s_nationkey", WHOLE),
         ("s_phone", TEXT), ("s_acctbal", MONEY), ("s_comment", TEXT)]
    ),
    "customer": pa.schema(
        [("c_custkey", WHOLE), ("c_name", TEXT), ("c_address", TEXT), ("c_nationkey", WHOLE),
         ("c_phone", TEXT), ("c_acctbal", MONEY), ("c_mktsegment", TEXT), ("c_comment", TEXT)]
    ),
    "part": pa.schema(
        [("p_partkey", WHOLE), ("p_name", TEXT), ("p_mfgr", TEXT), ("p_brand", TEXT),
         ("p_type", TEXT), ("p_size", pa.int32()), ("p_container", TEXT), ("p_retailprice", MONEY)]
    ),
    "partsupp": pa.schema(
        [("ps_partkey", WHOLE), ("ps_suppkey", WHOLE), ("ps_availqty", pa.int32()),
         ("ps_supplycost", MONEY)]
    ),
    "orders": pa.schema(
        [("o_orderkey", WHOLE), ("o_custkey", WHOLE), ("o_orderstatus", TEXT),
         ("o_totalprice", MONEY), ("o_orderdate", DAY), ("o_orderpriority", TEXT),
         ("o_shippriority", pa.int32()), ("o_comment", TEXT)]
    ),
    "lineitem": pa.schema(
        [("l_orderkey", WHOLE), ("l_partkey", WHOLE), ("l_suppkey", WHOLE),
         ("l_linenumber", pa.int32()), ("l_quantity", MONEY), ("l_extendedprice", MONEY),
         ("l_discount", MONEY), ("l_tax", MONEY), ("l_returnflag", TEXT), ("l_linestatus", TEXT),
         ("l_shipdate", DAY), ("l_commitdate", DAY), ("l_receiptdate", DAY),
         ("l_shipinstruct", TEXT), ("l_shipmode", TEXT)]
    ),
}  # fmt: skip
REGIONS = ["AFRICA", "AMERICA", "ASIA", "EUROPE"]
NATIONS = ["KENYA", "BRAZIL", "JAPAN", "FRANCE", "EGYPT", "CANADA", "INDIA", "GERMANY"]
COLOURS = ["green", "forest", "red", "blue"]
FIRST = date(1994, 1, 1)


def tables(seed: int, scale: int = 40) -> dict[str, pa.Table]:
    """So many parts and suppliers, three times as many orders, lines of these."""
    given = _Dice(seed)
    suppliers, parts, orders = max(4, scale // 4), scale, 3 * scale
    rows = {
        "region": list(enumerate(REGIONS)),
        "nation": [(i, name, i % len(REGIONS)) for i, name in enumerate(NATIONS)],
        "supplier": [given.supplier(i) for i in range(suppliers)],
        "customer": [given.customer(i) for i in range(scale)],
        "part": [given.part(i) for i in range(parts)],
        "partsupp": [
            (part, supplier, given.randint(1, 100), given.money(1, 100))
            for part in range(parts)
            for supplier in sorted(given.sample(range(suppliers), 3))
        ],
        "orders": [given.order(i, scale * 2 // 3) for i in range(orders)],
        "lineitem": [
            given.line(order, number, parts, suppliers)
            for order in range(orders)
            for number in range(given.choice([0, 1, 2, 3, 5]))
        ],
    }
    return {
        name: pa.Table.from_pylist(
            [dict(zip(schema.names, row, strict=True)) for row in rows[name]], schema
        )
        for name, schema in SCHEMAS.items()
    }


class _Dice(random.Random):
    def money(self, low: int, high: int) -> Decimal:
        return Decimal(self.randint(100 * low, 100 * high)) / 100

    def rate(self) -> Decimal:
        return Decimal(self.randint(0, 10)) / 100

    def phone(self) -> str:
        return f"{self.choice([13, 17, 23, 31])}-{self.randint(100, 999)}"

    def day(self, spread: int = 700) -> date:
        return FIRST + timedelta(days=self.randint(0, spread))

    def supplier(self, key: int) -> tuple[object, ...]:
        remark = self.choice(["nice", "many Customer xx Complaints", "quick"])
        nation = self.randrange(len(NATIONS))
        balance = self.money(-900, 9_000)
        return key, f"Supplier {key}", f"street {key}", nation, self.phone(), balance, remark

    def customer(self, key: int) -> tuple[object, ...]:
        segment = self.choice(["BUILDING", "MACHINERY"])
        nation = self.randrange(len(NATIONS))
        balance = self.money(-900, 9_000)
        name, street = f"Customer {key}", f"road {key}"
        return key, name, street, nation, self.phone(), balance, segment, "none"

    def part(self, key: int) -> tuple[object, ...]:
        name = f"{self.choice(COLOURS)} {self.choice(COLOURS)}"
        type_ = f"{self.choice(['PROMO', 'STANDARD'])} {self.choice(['ANODIZED', 'POLISHED'])} "
        type_ += self.choice(["BRASS", "STEEL"])
        container = self.choice(["SM CASE", "MED BOX", "LG BOX"])
        brand = f"Brand#{self.choice([12, 23, 34])}"
        size = self.randint(1, 15)
        return key, name, "Manufacturer#1", brand, type_, size, container, self.money(900, 2_000)

    def order(self, key: int, customers: int) -> tuple[object, ...]:
        priority = self.choice(["1-URGENT", "2-HIGH", "3-MEDIUM"])
        remark = self.choice(["plain", "special packages of requests", "none"])
        total = self.money(1_000, 400_000)
        status = self.choice("OFF")
        return key, self.randrange(customers), status, total, self.day(), priority, 0, remark

    def line(self, order: int, number: int, parts: int, suppliers: int) -> tuple[object, ...]:
        shipped = self.day()
        due, got = (shipped + timedelta(days=self.randint(-20, 30)) for _ in range(2))
        prices = self.money(1, 50), self.money(900, 90_000), self.rate(), self.rate()
        flags = self.choice("ARN"), self.choice("OF")
        way = self.choice(["DELIVER IN PERSON", "NONE"]), self.choice(["MAIL", "SHIP", "AIR"])
        keys = order, self.randrange(parts), self.randrange(suppliers), number
        return *keys, *prices, *flags, shipped, due, got, *way


QUERIES = {
    1: """SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty,
        sum(l_extendedprice) AS sum_base, sum(l_extendedprice * (1 - l_discount)) AS sum_disc,
        sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
        avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc,
        count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1995-12-01' - INTERVAL 90 DAYS
        GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
    2: """SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        FROM part, supplier, partsupp, nation, region
        WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size < 12
        AND p_type LIKE '%BRASS' AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
        AND r_name = 'EUROPE' AND ps_supplycost = (
          SELECT min(ps_supplycost) FROM partsupp, supplier, nation, region
          WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND s_nationkey = n_nationkey
          AND n_regionkey = r_regionkey AND r_name = 'EUROPE')
        ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100""",
    3: """SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate,
        o_shippriority FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
        AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority
        ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10""",
    4: """SELECT o_orderpriority, count(*) AS order_count FROM orders
        WHERE o_orderdate >= DATE '1994-07-01' AND o_orderdate < DATE '1995-07-01'
        AND EXISTS (SELECT * FROM lineitem
          WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority ORDER BY o_orderpriority""",
    5: """SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
        AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey
        AND r_name IN ('ASIA', 'AFRICA') AND o_orderdate >= DATE '1994-01-01'
        GROUP BY n_name ORDER BY revenue DESC""",
    6: """SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
        AND l_discount BETWEEN 0.05 AND 0.09 AND l_quantity < 44""",
    7: """SELECT supp_nation, cust_nation, l_year, sum(volume) AS revenue FROM (
          SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, year(l_shipdate) AS l_year,
          l_extendedprice * (1 - l_discount) AS volume
          FROM supplier, lineitem, orders, customer, nation n1, nation n2
          WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
          AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
          AND ((n1.n_name < 'G' AND n2.n_name > 'G') OR (n1.n_name > 'G' AND n2.n_name < 'G'))
          AND l_shipdate BETWEEN DATE '1994-01-01' AND DATE '1996-12-31') AS shipping
        GROUP BY supp_nation, cust_nation, l_year ORDER BY supp_nation, cust_nation, l_year""",
    8: """SELECT o_year,
        sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) AS mkt_share FROM (
          SELECT year(o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume,
          n2.n_name AS nation
          FROM part, supplier, lineitem, orders, customer, nation n1, nation n2, region
          WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey
          AND o_custkey = c_custkey AND c_nationkey = n1.n_nationkey
          AND n1.n_regionkey = r_regionkey AND r_name = 'AMERICA' AND s_nationkey = n2.n_nationkey
          AND p_type LIKE 'STANDARD%') AS all_nations
        GROUP BY o_year ORDER BY o_year""",
    9: """SELECT nation, o_year, sum(amount) AS sum_profit FROM (
          SELECT n_name AS nation, year(o_orderdate) AS o_year,
          l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
          FROM part, supplier, lineitem, partsupp, orders, nation
          WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey
          AND p_partkey = l_partkey AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey
          AND p_name LIKE '%green%') AS profit
        GROUP BY nation, o_year ORDER BY nation, o_year DESC""",
    10: """SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal,
        n_name, c_address, c_phone, c_comment FROM customer, orders, lineitem, nation
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey
        AND o_orderdate >= DATE '1994-06-01' AND l_returnflag = 'R' AND c_nationkey = n_nationkey
        GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        ORDER BY revenue DESC, c_custkey LIMIT 20""",
    11: """SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value
        FROM partsupp, supplier, nation
        WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name < 'H'
        GROUP BY ps_partkey HAVING sum(ps_supplycost * ps_availqty) > (
          SELECT sum(ps_supplycost * ps_availqty) * 0.02 FROM partsupp, supplier, nation
          WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name < 'H')
        ORDER BY value DESC, ps_partkey""",
    12: """SELECT l_shipmode,
        sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS high,
        sum(CASE WHEN o_orderpriority NOT IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS low
        FROM orders, lineitem WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP')
        AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
        GROUP BY l_shipmode ORDER BY l_shipmode""",
    13: """SELECT c_count, count(*) AS custdist FROM (
          SELECT c_custkey, count(o_orderkey) AS c_count FROM customer LEFT OUTER JOIN orders
          ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%'
          GROUP BY c_custkey) AS c_orders
        GROUP BY c_count ORDER BY custdist DESC, c_count DESC""",
    14: """SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%'
          THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
        / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue
        FROM lineitem, part WHERE l_partkey = p_partkey AND l_shipdate >= DATE '1994-09-01'""",
    15: """WITH revenue AS (
          SELECT l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total_revenue
          FROM lineitem WHERE l_shipdate >= DATE '1994-01-01' GROUP BY l_suppkey)
        SELECT s_suppkey, s_name, s_address, s_phone, total_revenue FROM supplier, revenue
        WHERE s_suppkey = supplier_no
        AND total_revenue = (SELECT max(total_revenue) FROM revenue) ORDER BY s_suppkey""",
    16: """SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS supplier_cnt
        FROM partsupp, part WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#12'
        AND p_type NOT LIKE 'PROMO POLISHED%' AND p_size IN (1, 2, 3, 4, 9, 10, 14)
        AND ps_suppkey NOT IN (
          SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
        GROUP BY p_brand, p_type, p_size ORDER BY supplier_cnt DESC, p_brand, p_type, p_size""",
    17: """SELECT sum(l_extendedprice) / 7.0 AS avg_yearly FROM lineitem, part
        WHERE p_partkey = l_partkey AND p_container = 'MED BOX' AND l_quantity < (
          SELECT 0.8 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)""",
    18: """SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS qty
        FROM customer, orders, lineitem WHERE o_orderkey IN (
          SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 80)
        AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100""",
    19: """SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitem, part
        WHERE p_partkey = l_partkey AND l_shipmode IN ('AIR', 'MAIL')
        AND l_shipinstruct = 'DELIVER IN PERSON' AND (
          (p_brand = 'Brand#12' AND p_container = 'SM CASE' AND l_quantity BETWEEN 1 AND 31)
          OR (p_brand = 'Brand#23' AND p_container = 'MED BOX' AND p_size BETWEEN 1 AND 10)
          OR (p_brand = 'Brand#34' AND p_container = 'LG BOX' AND l_quantity > 5))""",
    20: """SELECT s_name, s_address FROM supplier, nation WHERE s_suppkey IN (
          SELECT ps_suppkey FROM partsupp
          WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%')
          AND ps_availqty > (SELECT 0.5 * sum(l_quantity) FROM lineitem
            WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey))
        AND s_nationkey = n_nationkey AND n_name < 'J' ORDER BY s_name""",
    21: """SELECT s_name, count(*) AS numwait FROM supplier, lineitem l1, orders, nation
        WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F'
        AND l1.l_receiptdate > l1.l_commitdate AND EXISTS (
          SELECT * FROM lineitem l2
          WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)
        AND NOT EXISTS (SELECT * FROM lineitem l3 WHERE l3.l_orderkey = l1.l_orderkey
          AND l3.l_suppkey <> l1.l_suppkey AND l3.l_receiptdate > l3.l_commitdate)
        AND s_nationkey = n_nationkey AND n_name < 'K'
        GROUP BY s_name ORDER BY numwait DESC, s_name LIMIT 100""",
    22: """SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal FROM (
          SELECT substring(c_phone, 1, 2) AS cntrycode, c_acctbal FROM customer
          WHERE substring(c_phone, 1, 2) IN ('13', '31', '23') AND c_acctbal > (
            SELECT avg(c_acctbal) FROM customer WHERE c_acctbal > 0.00
            AND substring(c_phone, 1, 2) IN ('13', '31', '23'))
          AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey)) AS custsale
        GROUP BY cntrycode ORDER BY cntrycode""",
}
