"""Expressions over the table of `edges`: those that the embedded engine has, those that are errors, and those that it leaves to Spark."""

# ruff: noqa: E501

from __future__ import annotations


def _listed(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for line in text.strip().splitlines() for one in line.split(";") if one.strip())


EMBEDDED = _listed(r"""
    i / nullif(j, 0); CAST(i AS BIGINT) + j; CAST(i AS BIGINT) - j; CAST(i AS BIGINT) * 3; CAST(i AS BIGINT) div 3; i % 3; b % 7; i % -1; CAST(y AS INT) + 5; CAST(y AS INT) * -3; -CAST(i AS BIGINT)
    abs(CAST(i AS BIGINT)); abs(d); abs(f); -f; -d; y / 3; i + CAST(1.5 AS DECIMAL(4,1)); i + d; d + e; d * e; d / nullif(e, 0); d % nullif(e, 0); big + d; big / 7; d - 1; d * 2; d / 3; d % 0.3; i - 0.5
    f + 1; f / 3; f % 2; f * g; g + g; g + 1; g * g; d + f; i / 2; i / 2.5; f - g; f + f; (d + NULL) / 0; f % 0.3D; CAST(y AS DECIMAL(10,2)) / nullif(d, 0)
    i = j; i < j; i <=> j; f = g; f < 1; f <=> f; f = f; f > 1e14; g = 0.1; d = 2.5; d = e; s = u; s < u; s <=> u; s = 'A'; s > 'a'; s <= u; i = d; i < f; i < d; y < b; f < b; g < f; i = 1.5
    s = 'it''s'; s = "it's"; s IN ('its', 'it''s'); day = DATE '2024-02-29'; day > '2024-01'; day < at; day <=> at; mo <=> at; at < TIMESTAMP_NTZ '2024-01-01 00:00:00'; mo > TIMESTAMP '2024-01-01 00:00:00'; bin = bin; bin IS NULL
    f BETWEEN 0 AND 2; i BETWEEN 0 AND j; i IN (1, 2, NULL); i IN (1, 2); s IN ('a', 'A'); i NOT IN (1, 2); f IN (0, 1.5); NOT (i > 0); i > 0 AND f > 0; i > 0 OR f > 0; (i > 0) = (j > 0); i IS NULL; f IS NOT NULL; i > 0 IS NULL; isnan(f)
    greatest(i, j); least(i, j); greatest(s, u); least(d, e); greatest(day, DATE '2024-01-01'); least(mo, mo); nullif(i, j); nullif(f, f); nullif(f, 0D); nullif(s, ''); coalesce(i, j, 0); coalesce(d, i); nvl(s, u); ifnull(d, e); nvl2(i, s, u); zeroifnull(i)
    if(i > 0, s, u); if(i > 0, d, e); CASE WHEN f > 0 THEN 1 WHEN f < 0 THEN -1 ELSE 0 END; CASE i WHEN 1 THEN 'one' ELSE s END; CASE WHEN d > 1 THEN y WHEN i > 0 THEN i END
    length(s); trim(s); ltrim(s); rtrim(s); substring(s, 2); substr(s, 2, 100); left(s, 2); concat(s, u); s || u; concat(s, i); concat(s, d); concat(s, day); startswith(s, 'a'); endswith(s, u); contains(s, u)
    s LIKE 'a%'; s LIKE 'a\\_b'; s LIKE 'a\\%b'; s LIKE '%'; s LIKE '_'; s LIKE '__'; s LIKE ''; s NOT LIKE 'a%'; NOT (s LIKE 'a%'); s NOT LIKE '%a'
    CAST(i AS STRING); CAST(d AS STRING); CAST(big AS STRING); CAST(day AS STRING); CAST(i > 0 AS STRING); CAST(i > 0 AS INT); CAST(d AS INT); CAST(d AS BIGINT); CAST(d AS DECIMAL(10,1)); CAST(e AS DECIMAL(20,2)); CAST(e AS DECIMAL(20,0)); CAST(i AS DECIMAL(20,3))
    CAST(g AS DOUBLE); CAST(i AS DOUBLE); CAST(b AS DOUBLE); CAST(b AS FLOAT); CAST(d AS DOUBLE); CAST(y AS FLOAT); CAST(y AS SMALLINT); CAST(at AS DATE); CAST(mo AS DATE); CAST(day AS TIMESTAMP_NTZ); CAST(day AS TIMESTAMP); CAST(at AS TIMESTAMP)
    round(i); round(d); round(d, 1); round(e, 2); round(e); round(big, 3); try_divide(i, j); try_divide(i, 0); try_divide(d, e); try_divide(f, 0); try_divide(big, CAST(0.0000000001 AS DECIMAL(38,10)))
    year(day); quarter(day); month(day); day(day); dayofyear(day); year(at); month(mo); hour(at); hour(mo); minute(at); second(at); to_date(at); datediff(day, DATE '2024-01-01'); if(year(day) > 1, date_sub(day, 5), NULL); if(year(day) > 1, day - 1, NULL); if(year(day) BETWEEN 2 AND 9998, day + y, NULL)
    date_trunc('MONTH', at); date_trunc('week', mo); date_trunc('YEAR', day); date_trunc('hour', at); date_trunc('QUARTER', at); date_trunc('month', mo)
""")

ERRORS = _listed("""
    i + j; i * 3; -i; abs(i); i / j; i % j; i div j; b * b; y + y; -y; d / d; CAST(i AS TINYINT); CAST(b AS INT); CAST(i AS DECIMAL(5,2)); big * big
""")
"""Under ANSI rules, for some of the rows."""

BY_SPARK = _listed("""
    concat_ws('-', s, u); upper(s); lower(s); CAST(f AS FLOAT); CAST(at AS STRING); CAST(f AS INT); CAST(s AS INT); TRY_CAST(s AS INT); CAST(f AS STRING); round(d, -1); round(f, 1); greatest(f, 1.0D)
    substring(s, -2, 1); right(s, 1); length(bin); replace(s, 'a', 'b'); trim(BOTH 'a' FROM s); d div 3; s LIKE u; s ILIKE 'A%'; s RLIKE 'a'; s LIKE 'a!_b' ESCAPE '!'; try_add(i, j); reverse(s); s COLLATE UTF8_LCASE = 'A'
""")
