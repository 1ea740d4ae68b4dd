"""TiCDC's scenarios of types, keys and transactions: SQL for a playground, each for a database of its own."""

from __future__ import annotations

from collections.abc import Iterator

SCENARIOS = {
    "charset_gbk": """
create table t (id int primary key, a varchar(20) character set gbk, b char(10) character set gbk collate gbk_bin,
 c text character set gbk);
insert into t values (1, '你好', '中文', '测试'), (2, '国', '', null), (3, 'plain', 'ascii', 'x''y\\\\z');
update t set a = '再见' where id = 1;
delete from t where id = 2;
create table l (id int primary key, a varchar(20) character set latin1, b varchar(20) character set ascii,
 u varchar(20) character set utf8);
insert into l values (1, 'été ÿ', 'abc', '你好'), (2, 'Müller', '', 'ü');
update l set a = 'naïve' where id = 2
""",
    "row_format": """
create table t (id int primary key, a bigint unsigned, b varchar(20), c decimal(20,5), d datetime(3), f json, g float, h binary(4),
 j time, k timestamp null, l varchar(20) character set gbk);
insert into t values (1, 18446744073709551615, 'a', -1.5, '2024-02-29 12:00:00.123', '{"a":[1]}', 1.5, 'ab', '-01:02:03',
 '2024-03-31 01:30:00', '你好');
insert into t values (2, null, null, null, null, null, null, null, null, null, null);
insert into t values (3, 0, '', 0, '2000-01-01', '[]', -0.5, '', '00:00:00', null, '');
update t set a = 7, b = 'b' where id = 1;
update t set c = 99999.99999, f = '"x"' where id = 2;
update t set b = null, a = 1 where id = 1;
update t set l = '再见' where id = 3;
delete from t where id = 2;
insert into t values (4, 1, 'z', 1, '9999-12-31 23:59:59.999', 'null', 0, '', '838:59:59', null, 'q');
update t set id = 5, j = '00:00:01' where id = 4;
delete from t where id = 3
""",
    "new_ci_collation": """
create table g (id int primary key, u varchar(20), v int, unique key (u)) collate utf8mb4_general_ci;
insert into g values (1, 'a', 1), (2, 'b', 2), (3, 's', 3), (4, null, 4), (5, null, 5);
delete from g where id = 1;
insert into g values (6, 'A ', 6);
update g set u = 'x' where id = 6;
update g set u = 'A' where id = 2;
update g set u = 'B' where id = 6;
begin;
update g set u = 't' where id = 2;
update g set u = 'a' where id = 6;
update g set u = 'b' where id = 2;
commit;
create table p (k varchar(20) collate utf8mb4_general_ci primary key, v int);
insert into p values ('Street', 1), ('e', 2);
delete from p where k = 'e';
insert into p values ('E', 3);
delete from p where k = 'E';
insert into p values ('e ', 4);
create table f (id int primary key, u varchar(30) collate utf8mb4_general_ci, unique key (u(2)));
insert into f values (1, 'abc'), (2, 'bcd');
delete from f where id = 1;
insert into f values (3, 'ABx');
create table s (id int primary key, u varchar(20), unique key (u));
insert into s values (1, 'a'), (2, 'A'), (3, 'b');
delete from s where id = 1;
insert into s values (4, 'a ')
""",
    "many_pk_or_uk": """
create table m (id int, b int not null, c varchar(10), d int, primary key (id), unique key (b), unique key (c), unique key (d, c));
insert into m values (1, 1, 'a', 1), (2, 2, 'b', 2), (3, 3, null, 3), (4, 4, null, 3), (5, 5, 'e', null);
begin;
update m set b = 100 where id = 1;
update m set b = 1 where id = 2;
update m set b = 2 where id = 1;
commit;
begin;
update m set c = 'z' where id = 1;
update m set c = 'a' where id = 2;
update m set c = 'b' where id = 1;
commit;
update m set id = 10 where id = 3;
update m set id = 3, b = 33 where id = 4;
delete from m where id = 5;
insert into m values (6, 5, 'e', null);
create table u (a int not null, b int, c int not null, unique key (a, c), unique key (b));
insert into u values (1, 1, 1), (1, null, 2), (2, null, 1);
update u set a = 3 where b = 1;
update u set b = 9 where a = 3;
update u set b = 1, a = 1 where c = 2;
create table w (a bigint unsigned, b varbinary(8), c datetime(3), primary key (a, b, c));
insert into w values (18446744073709551615, x'00ff', '2024-01-02 03:04:05.678'), (0, '', '1970-01-01 00:00:00');
update w set b = x'27' where a = 0;
create table n (a int, b varchar(10));
insert into n values (1, 'x'), (1, 'x'), (null, null), (2, 'a ');
delete from n where a = 1;
insert into n values (1, 'x'), (3, 'y');
update n set b = 'z' where a = 3
""",
    "conflict_key_generated_column": """
create table g (id int primary key, v int, w int generated always as (v + 1) stored, x int generated always as (v * 2) virtual,
 unique key (w), unique key (x));
insert into g (id, v) values (1, 1), (2, 2), (3, null);
delete from g where id = 1;
insert into g (id, v) values (4, 1);
begin;
update g set v = 50 where id = 4;
update g set v = 1 where id = 2;
update g set v = 2 where id = 4;
commit
""",
    "complex_transaction": """
create table a (id int primary key, v int, s varchar(10));
create table b (id int primary key, v int);
insert into a values (1, 1, 'one'), (2, 2, 'two'), (3, 3, 'three');
begin;
insert into a values (4, 4, 'four');
update a set v = v + 10 where id = 1;
delete from a where id = 2;
insert into b values (1, 1);
insert into a values (2, 22, 'again');
update a set id = 7 where id = 3;
delete from b where id = 1;
insert into b values (1, 2), (2, 3);
update a set s = null where id = 4;
delete from a where id = 4;
commit;
begin;
delete from a;
insert into a values (1, 100, 'x'), (9, 9, 'y');
rollback;
begin;
delete from b;
insert into b values (5, 5);
commit
""",
    "ddl": """
create table t (id int primary key, a int);
insert into t values (1, 1), (2, 2);
alter table t add column b varchar(10) not null default 'added', add column c int;
insert into t (id, a) values (3, 3);
alter table t rename column a to aa;
update t set aa = 5 where id = 1;
alter table t modify column aa bigint;
alter table t drop column c;
rename table t to u;
insert into u (id, aa) values (4, 4);
create table x like u;
insert into x (id, aa) values (1, 1);
create table y (id int primary key);
insert into y values (1);
truncate table y;
insert into y values (2);
create table z (id int primary key);
drop table z;
create table z (id int primary key, v int);
insert into z values (1, 7);
alter table z add unique index by_v (v);
alter table z drop index by_v;
create view v as select * from z;
drop view v
""",
    "partition_table": """
create table p (id int, d int, primary key (id, d)) partition by range (d)
 (partition p0 values less than (10), partition p1 values less than (20));
insert into p values (1, 1), (2, 12), (3, 5);
alter table p add partition (partition p2 values less than (30));
insert into p values (4, 25);
update p set d = 11 where id = 1;
alter table p truncate partition p0;
alter table p drop partition p2;
create table e (id int, d int, primary key (id, d));
insert into e values (70, 15), (71, 16);
alter table p exchange partition p1 with table e
""",
    "wide_table": (
        f"create table w (id int primary key, {', '.join(f'c{n} int' for n in range(200))});"
        + ";".join(f"insert into w values ({row}, {', '.join(str(row * n) for n in range(200))})" for row in range(3))
        + ";update w set c199 = -1, c0 = null where id = 1"
    ),
    "autorandom": """
create table r (id bigint primary key auto_random(5), v int);
insert into r values (1, 1), (288230376151711745, 2), (-5, 3);
create table i (id int primary key auto_increment, v int);
insert into i values (0, 1), (-1, 2), (7, 3);
update i set v = 9 where id = 0
""",
    "large_txn": "create table t (id int primary key, v varchar(20));"
    + f"insert into t values {', '.join(f'({n}, {chr(39)}row {n}{chr(39)})' for n in range(1500))};"
    + "update t set v = 'changed' where id < 1000;delete from t where id > 1400",
    "tables_of_many_schemas": """
create table t0 (id int primary key, v int);
create table t1 like t0;
create table t2 like t0;
create database other_schema;
create table other_schema.t0 (id int primary key, v int);
insert into t0 values (1, 1);
insert into other_schema.t0 values (1, 2);
begin;
insert into t1 values (1, 3);
insert into other_schema.t0 values (2, 3);
insert into t2 values (1, 3);
commit;
rename table t2 to other_schema.t2;
create table other_schema.x like t1;
insert into other_schema.x values (5, 5);
insert into other_schema.t2 values (2, 4);
drop table t1;
create table other_schema.p (id int primary key, v int) partition by range (id) (partition p0 values less than (100));
create table plain (id int primary key, v int);
insert into other_schema.p values (1, 1);
insert into plain values (2, 2);
alter table other_schema.p exchange partition p0 with table plain
""",
    "default_value": """
create table d (id int primary key);
insert into d values (1), (2);
alter table d add column a int default 5, add column b varchar(10) default 'x', add column c datetime default '2020-01-02 03:04:05',
 add column e enum('m', 'n') not null default 'n', add column f decimal(10,3) default 1.5, add column g bit(4) default b'101';
insert into d (id) values (3);
insert into d values (4, null, null, null, 'm', -1.25, 0);
update d set a = 6 where id = 1
""",
    "types": """
create table t (id int primary key, t time(3), d date, dt datetime(6), ts timestamp(2) null, y year, b bit(64),
 e enum('a', 'it''s', ''), s set('x', 'y', 'z'),
 n decimal(65,30), f float, g double,
 bi binary(4), vb varbinary(10), bl blob, j json, u bigint unsigned, m mediumint, z int zerofill, v vector(3));
insert into t values (1, '-838:59:59', '0000-00-00', '0000-00-00 00:00:00', '1970-01-01 00:00:01', 0, 18446744073709551615, 'a', 'x,z',
 12345678901234567890.000000000000000000000000000001, 1.5e-10, -1.7976931348623157e308, 'ab', x'00ff27', x'5c',
 '{"a": [1, "x"], "ü": null}',
 18446744073709551615, -8388608, 7, '[1,2.5,-3]');
insert into t values (2, '-00:00:00.5', '9999-12-31', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07', 2155, 0, 'it''s', '',
 0, 3.4028235e38, 0.1, '', '', '', '[]', 0, 8388607, 0, '[0,0,0]');
insert into t values (3, '838:59:59', '2024-02-29', '2024-02-29 12:00:00.000001', '2024-03-31 02:30:00.12', 1901, 5, '',
 'y', 99999999999999999999999999999999999.999999999999999999999999999999, -0.25, 1e100, x'00', x'0d0a', 'it''s',
 '"text \\\\" quoted"', 1, 0, 42, null);
insert into t (id) values (4);
update t set t = '-01:02:03.004', e = 'a' where id = 4
""",
}


def statements(text: str) -> Iterator[str]:
    yield from (part.strip() for part in text.split(";") if part.strip())
