"""The tables of the workloads: all column types, all kinds of keys, partitions."""

from __future__ import annotations

MIXED_TABLES: dict[str, dict[str, str]] = {
    "shop": {
        "users": """create table users (id bigint primary key, name varchar(64) not null, email varchar(80),
            balance decimal(12,2) not null default 0, born date, active boolean not null default true, notes text,
            unique key by_email (email))""",
        "orders": """create table orders (id bigint unsigned primary key auto_increment, user_id bigint not null, total decimal(14,4), state
            enum('new','paid','sent','done') not null default 'new', tags set('gift','fast','fragile'), placed datetime(6), detail json,
            key by_user (user_id))""",
        "items": """create table items (order_id int not null, line smallint not null, sku varchar(20),
            quantity int unsigned not null default 1, price double, primary key (order_id, line))""",
        "stock": """create table stock (sku varchar(20) not null, place char(8) not null, amount int, counted timestamp null, weight float,
            primary key (sku, place))""",
    },
    "logs": {
        "events": "create table events (at datetime(3), kind varchar(20), payload blob, level tinyint unsigned)",
        "metrics": """create table metrics (id int not null, host varchar(30), value double, at timestamp(6) null, primary key (id))
            partition by hash (id) partitions 4""",
        "visits": """create table visits (id bigint not null, day int not null, page varchar(100), seconds int, primary key (id, day))
            partition by range (day) (partition p0 values less than (300), partition p1 values less than (600),
            partition p2 values less than (1000), partition p3 values less than maxvalue)""",
    },
    "kinds": {
        "all_types": """create table all_types (id int primary key, c_tiny tinyint, c_utiny tinyint unsigned, c_small smallint, c_usmall
            smallint unsigned, c_medium mediumint, c_umedium mediumint unsigned, c_int int, c_uint int unsigned, c_big bigint,
            c_ubig bigint unsigned, c_bool boolean, c_float float, c_double double, c_decimal decimal(10,2), c_wide
            decimal(38,10), c_bit bit(12), c_date date, c_datetime datetime, c_datetime6 datetime(6), c_timestamp timestamp null,
            c_timestamp6 timestamp(6) null, c_time time, c_time3 time(3), c_year year, c_char char(10), c_varchar varchar(40),
            c_binary binary(8), c_varbinary varbinary(16), c_tinyblob tinyblob, c_blob blob, c_tinytext tinytext, c_text text,
            c_mediumtext mediumtext, c_longtext longtext, c_enum enum('a','b','c'), c_set set('x','y','z'), c_json json, c_gbk
            varchar(20) character set gbk, c_latin char(5) character set latin1, c_ci varchar(20) collate utf8mb4_general_ci)""",
        "computed": """create table computed (id bigint primary key nonclustered, a int not null, b int, total int as (a + 1) stored,
            twice int as (a * 2) virtual, label varchar(30))""",
        "unsigned_key": "create table unsigned_key (id bigint unsigned primary key, v varchar(20))",
        "spread": "create table spread (id bigint primary key auto_random(5), v int, w varchar(10))",
        "dated": """create table dated (day date not null, code varbinary(6) not null, amount decimal(8,3), note varchar(20), primary key
            (day, code))""",
    },
}
"""Database → table → statement."""

BANK_TABLES = {
    "bank_a": "create table accounts (id int primary key, balance bigint not null, owner varchar(40))",
    "bank_b": "create table accounts (id int primary key, balance bigint not null, owner varchar(40))",
}
"""Database → statement."""
