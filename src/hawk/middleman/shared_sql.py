"""The tables that replicas share, and the statements of one round trip."""

from __future__ import annotations

LOCK = "SELECT pg_advisory_xact_lock(hashtext('hawk_middleman'))"

SETTINGS = (
    "SET synchronous_commit = off",
    "SET lock_timeout = '1500ms'",
    "SET statement_timeout = '2000ms'",
    "SET idle_in_transaction_session_timeout = '2000ms'",
    "SET search_path = hawk_middleman",
    "LISTEN hawk_middleman",
)

SCHEMA = """
CREATE SCHEMA IF NOT EXISTS hawk_middleman;
CREATE SEQUENCE IF NOT EXISTS hawk_middleman.version;
CREATE TABLE IF NOT EXISTS hawk_middleman.replicas (
    id text PRIMARY KEY, heard_at timestamptz NOT NULL, fingerprint text NOT NULL, url text NOT NULL,
    batch bigint NOT NULL DEFAULT 0);
CREATE UNLOGGED TABLE IF NOT EXISTS hawk_middleman.leases (
    replica text NOT NULL REFERENCES hawk_middleman.replicas ON DELETE CASCADE, lane text NOT NULL,
    places integer NOT NULL, requests float8 NOT NULL, tokens float8 NOT NULL,
    used_requests float8 NOT NULL, used_tokens float8 NOT NULL, demand jsonb NOT NULL,
    PRIMARY KEY (replica, lane));
CREATE UNLOGGED TABLE IF NOT EXISTS hawk_middleman.limits (
    lane text PRIMARY KEY, value float8 NOT NULL, changed_at timestamptz NOT NULL);
CREATE UNLOGGED TABLE IF NOT EXISTS hawk_middleman.pauses (
    lane text PRIMARY KEY, until timestamptz NOT NULL, why text NOT NULL, version bigint NOT NULL);
CREATE TABLE IF NOT EXISTS hawk_middleman.jobs (
    job text PRIMARY KEY, usd float8 NOT NULL, tokens bigint NOT NULL, requests bigint NOT NULL,
    unpriced bigint NOT NULL, version bigint NOT NULL, changed_at timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS hawk_middleman.revoked (
    job text PRIMARY KEY, at float8 NOT NULL, version bigint NOT NULL, changed_at timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS hawk_middleman.keys (
    job text PRIMARY KEY, sealed text NOT NULL, version bigint NOT NULL, changed_at timestamptz NOT NULL);
ALTER TABLE hawk_middleman.replicas ADD COLUMN IF NOT EXISTS open jsonb NOT NULL DEFAULT '{}';
CREATE TABLE IF NOT EXISTS hawk_middleman.spans (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job text NOT NULL, lines bytea NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX IF NOT EXISTS spans_of_job ON hawk_middleman.spans (job, seq);
CREATE TABLE IF NOT EXISTS hawk_middleman.span_batches (
    replica text PRIMARY KEY, batch bigint NOT NULL, noted_at timestamptz NOT NULL);
"""
"""Done again by every version that has more in it than the one before, so all of it bears to be done twice."""

NEWEST = "SELECT to_regclass('hawk_middleman.span_batches')"
"""What was added last: where it is there, all is."""

TIDY = (
    "DELETE FROM replicas WHERE heard_at < clock_timestamp() - interval '1 day'",
    "DELETE FROM jobs WHERE changed_at < clock_timestamp() - interval '35 days'",
    "DELETE FROM revoked WHERE changed_at < clock_timestamp() - interval '35 days'",
    "DELETE FROM keys WHERE changed_at < clock_timestamp() - interval '35 days'",
    "DELETE FROM limits WHERE changed_at < clock_timestamp() - interval '1 day'",
    "DELETE FROM pauses WHERE until < clock_timestamp() - interval '1 day'",
    "DELETE FROM span_batches WHERE noted_at < clock_timestamp() - interval '1 day'",
)
"""What is of a job is kept for longer than its token is valid."""

SPENT = """
INSERT INTO jobs AS j (job, usd, tokens, requests, unpriced, version, changed_at)
SELECT job, usd, tokens, requests, unpriced, nextval('version'), clock_timestamp()
FROM jsonb_to_recordset(%(spent)s::jsonb) AS x(job text, usd float8, tokens bigint, requests bigint, unpriced bigint)
WHERE coalesce((SELECT batch FROM replicas WHERE id = %(replica)s), 0) < %(batch)s
ON CONFLICT (job) DO UPDATE SET usd = j.usd + excluded.usd, tokens = j.tokens + excluded.tokens,
    requests = j.requests + excluded.requests, unpriced = j.unpriced + excluded.unpriced,
    version = excluded.version, changed_at = excluded.changed_at
"""
"""A batch counts once, though its replica does not know whether it arrived and sends it again."""

KNOWN = """
INSERT INTO jobs AS j (job, usd, tokens, requests, unpriced, version, changed_at)
SELECT job, usd, tokens, requests, unpriced, nextval('version'), clock_timestamp()
FROM jsonb_to_recordset(%(known)s::jsonb) AS x(job text, usd float8, tokens bigint, requests bigint, unpriced bigint)
ON CONFLICT (job) DO UPDATE SET usd = greatest(j.usd, excluded.usd), tokens = greatest(j.tokens, excluded.tokens),
    requests = greatest(j.requests, excluded.requests), unpriced = greatest(j.unpriced, excluded.unpriced),
    version = excluded.version, changed_at = excluded.changed_at
"""

REVOKED = """
WITH said AS (
    INSERT INTO revoked AS r (job, at, version, changed_at)
    SELECT job, at, nextval('version'), clock_timestamp()
    FROM jsonb_to_recordset(%(revoked)s::jsonb) AS x(job text, at float8)
    ON CONFLICT (job) DO UPDATE SET at = excluded.at, version = excluded.version, changed_at = excluded.changed_at
    WHERE r.at < excluded.at RETURNING job)
DELETE FROM keys WHERE job IN (SELECT job FROM said)
"""

KEYS = """
INSERT INTO keys (job, sealed, version, changed_at)
SELECT job, sealed, nextval('version'), clock_timestamp()
FROM jsonb_to_recordset(%(keys)s::jsonb) AS x(job text, sealed text)
ON CONFLICT (job) DO UPDATE
SET sealed = excluded.sealed, version = excluded.version, changed_at = excluded.changed_at
"""

PAUSES = """
INSERT INTO pauses AS p (lane, until, why, version)
SELECT lane, clock_timestamp() + make_interval(secs => seconds), why, nextval('version')
FROM jsonb_to_recordset(%(pauses)s::jsonb) AS x(lane text, seconds float8, why text)
ON CONFLICT (lane) DO UPDATE SET until = excluded.until, why = excluded.why, version = excluded.version
WHERE p.until < excluded.until
"""

HEARTBEAT = """
INSERT INTO replicas (id, heard_at, fingerprint, url, batch, open)
VALUES (%(replica)s, clock_timestamp(), %(fingerprint)s, %(url)s, %(batch)s, %(open)s::jsonb)
ON CONFLICT (id) DO UPDATE SET heard_at = excluded.heard_at, url = excluded.url, open = excluded.open,
    batch = greatest(replicas.batch, excluded.batch)
"""

FREED = "DELETE FROM leases WHERE replica = %(replica)s AND NOT lane = ANY(%(lanes)s)"

LEASES = """
WITH taken AS (
    SELECT lane, sum(places) AS places, sum(requests) AS requests, sum(tokens) AS tokens
    FROM leases JOIN replicas ON id = replica
    WHERE replica <> %(replica)s AND lane = ANY(%(lanes)s)
      AND heard_at > clock_timestamp() - make_interval(secs => %(heard_for)s)
    GROUP BY lane)
INSERT INTO leases (replica, lane, places, requests, tokens, used_requests, used_tokens, demand)
SELECT %(replica)s, x.lane,
    greatest(x.in_flight, least(x.places, x.most - coalesce(t.places, 0))),
    greatest(x.used_requests, least(x.requests, x.most_requests - coalesce(t.requests, 0))),
    greatest(x.used_tokens, least(x.tokens, x.most_tokens - coalesce(t.tokens, 0))),
    x.used_requests, x.used_tokens, x.demand
FROM jsonb_to_recordset(%(leases)s::jsonb) AS x(
    lane text, in_flight bigint, places bigint, most bigint, used_requests float8, requests float8,
    most_requests float8, used_tokens float8, tokens float8, most_tokens float8, demand jsonb)
LEFT JOIN taken t ON t.lane = x.lane
ON CONFLICT (replica, lane) DO UPDATE SET places = excluded.places, requests = excluded.requests,
    tokens = excluded.tokens, used_requests = excluded.used_requests, used_tokens = excluded.used_tokens,
    demand = excluded.demand
"""

LIMITS = """
INSERT INTO limits AS l (lane, value, changed_at)
SELECT lane, start, clock_timestamp()
FROM jsonb_to_recordset(%(limits)s::jsonb) AS x(lane text, start float8, change float8, lowest float8, highest float8)
ON CONFLICT (lane) DO UPDATE SET changed_at = excluded.changed_at,
    value = CASE WHEN l.changed_at < excluded.changed_at - interval '10 minutes' THEN excluded.value ELSE
        (SELECT greatest(x.lowest, least(x.highest, l.value + x.change))
         FROM jsonb_to_recordset(%(limits)s::jsonb) AS x(lane text, change float8, lowest float8, highest float8)
         WHERE x.lane = l.lane) END
"""
"""What an old limit says of the provider is not known any more."""

READ = """
WITH living AS (
    SELECT id, url, open FROM replicas WHERE heard_at > clock_timestamp() - make_interval(secs => %(heard_for)s))
SELECT json_build_object(
    'now', extract(epoch FROM clock_timestamp()),
    'replicas', (SELECT json_agg(json_build_object('id', id, 'url', url, 'open', open)) FROM living),
    'stranger', (SELECT min(url) FROM replicas WHERE fingerprint <> %(fingerprint)s
        AND heard_at > clock_timestamp() - make_interval(secs => %(heard_for)s)),
    'leases', (SELECT json_agg(l) FROM leases l JOIN living ON id = replica WHERE lane = ANY(%(lanes)s)),
    'limits', (SELECT json_object_agg(lane, value) FROM limits WHERE lane = ANY(%(lanes)s)),
    'jobs', (SELECT json_agg(j) FROM jobs j WHERE version > %(version)s),
    'pauses', (SELECT json_agg(json_build_object('lane', lane, 'why', why, 'version', version,
        'seconds', extract(epoch FROM until - clock_timestamp()))) FROM pauses WHERE version > %(version)s),
    'revoked', (SELECT json_agg(json_build_object('job', job, 'at', at, 'version', version,
        'age', extract(epoch FROM clock_timestamp() - changed_at))) FROM revoked WHERE version > %(version)s),
    'keys', (SELECT json_agg(k) FROM keys k WHERE version > %(version)s))::text
"""

DURABLE = "SET LOCAL synchronous_commit = on"
"""For what must not be lost when the database crashes: whoever was told that it arrived does not tell it again."""

TELL = "SELECT pg_notify('hawk_middleman', '')"

SPANS = """
WITH fresh AS (
    INSERT INTO hawk_middleman.span_batches AS b (replica, batch, noted_at)
    VALUES (%(replica)s, %(batch)s, clock_timestamp())
    ON CONFLICT (replica) DO UPDATE SET batch = excluded.batch, noted_at = excluded.noted_at
    WHERE b.batch < excluded.batch RETURNING 1)
INSERT INTO hawk_middleman.spans (job, lines)
SELECT job, lines FROM unnest(%(jobs)s::text[], %(lines)s::bytea[]) AS x(job, lines) WHERE EXISTS (SELECT FROM fresh)
"""
"""As with `SPENT`, a batch counts once, also where a server has taken it away meanwhile."""

SPANS_BOUNDED = """
DELETE FROM hawk_middleman.spans s USING (
    SELECT seq, noted_at, sum(octet_length(lines)) OVER (PARTITION BY job ORDER BY seq DESC) AS of_job,
        sum(octet_length(lines)) OVER (ORDER BY seq DESC) AS of_all
    FROM hawk_middleman.spans) x
WHERE s.seq = x.seq AND (x.of_job > %(of_job)s OR x.of_all > %(of_all)s
    OR x.noted_at < clock_timestamp() - make_interval(secs => %(seconds)s))
"""
"""The oldest go first. Nobody has fetched them: no server is there, or it does not know of the job any more."""
