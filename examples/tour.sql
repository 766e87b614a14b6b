-- A five-minute tour of Spate over real data: flights that left New York in the first days of
-- January 2013 (see examples/flights/README.md). From the root of the repository:
--
--     cargo run --release --bin spate -- -f examples/tour.sql

-- ---- Tables ------------------------------------------------------------------------------

-- Two tasks per step of a query, so that the plans below look the same on every machine.
SET parallelism = 2;

-- Airlines and airports are plain tables, loaded from CSV files.
CREATE TABLE airlines (carrier text PRIMARY KEY, name text NOT NULL);
COPY airlines FROM 'examples/flights/airlines.csv';
CREATE TABLE airports (faa text PRIMARY KEY, name text, lat double precision, lon double precision, alt int);
COPY airports FROM 'examples/flights/airports.csv';

-- Flights only ever come in. The watermark says how far out of order: ten minutes after a
-- later departure was seen, nothing earlier is waited for.
CREATE TABLE flights (
    departed timestamp, carrier text, flight int, tailnum text, origin text, dest text,
    dep_delay int, arr_delay int, distance int,
    WATERMARK FOR departed AS departed - INTERVAL '10 minutes'
) APPEND ONLY;

-- The weather is read where it lies, from its file: a source.
CREATE SOURCE weather (origin text, hour timestamp, temp_f double precision, wind_mph double precision, visib_mi double precision,
    WATERMARK FOR hour AS hour)
WITH (connector = 'file', path = 'examples/flights/weather.csv');

-- ---- Continuous queries ------------------------------------------------------------------

-- Windows over event time. A row appears once its hour is over, and never changes again.
CREATE MATERIALIZED VIEW hourly AS
SELECT window_start, origin, count(*) AS flights, avg(dep_delay) AS avg_delay, max(dep_delay) AS worst
FROM TUMBLE(flights, departed, INTERVAL '1 hour')
GROUP BY window_start, window_end, origin
EMIT ON WINDOW CLOSE;

-- A join to a table that may change, and an aggregate over it: kept up to date by both sides.
CREATE MATERIALIZED VIEW punctuality AS
SELECT a.name AS airline, count(*) AS flights, avg(f.arr_delay) AS avg_delay,
       count(*) FILTER (WHERE f.arr_delay > 30) AS late_arrivals
FROM flights f JOIN airlines a ON f.carrier = a.carrier
GROUP BY a.name;

-- A top-n stays a top-n: routes enter and leave it as flights come in.
CREATE MATERIALIZED VIEW top_routes AS
SELECT f.origin, p.name AS destination, count(*) AS flights
FROM flights f JOIN airports p ON f.dest = p.faa
GROUP BY f.origin, p.name
ORDER BY flights DESC, f.origin, destination
LIMIT 5;

-- A view over a view: the busiest hours of those that are over.
CREATE MATERIALIZED VIEW busiest_hours AS
SELECT window_start, origin, flights FROM hourly ORDER BY flights DESC, window_start, origin LIMIT 3;

-- The two busiest airports of every hour that is over: those with at most two rows at or above them.
CREATE MATERIALIZED VIEW top_per_hour AS
SELECT h.window_start, h.origin, h.flights, count(*) AS place
FROM hourly h JOIN hourly above ON above.window_start = h.window_start
     AND (above.flights > h.flights OR (above.flights = h.flights AND above.origin <= h.origin))
GROUP BY h.window_start, h.origin, h.flights
HAVING count(*) <= 2;

-- Flights and the wind at their airport in their hour.
CREATE MATERIALIZED VIEW delay_by_wind AS
SELECT CASE WHEN w.wind_mph < 8 THEN '1 light' WHEN w.wind_mph < 15 THEN '2 moderate' ELSE '3 strong' END AS wind,
       count(*) AS flights, avg(f.dep_delay) AS avg_delay
FROM TUMBLE(flights, departed, INTERVAL '1 hour') AS f
JOIN weather w ON w.origin = f.origin AND w.hour = f.window_start
GROUP BY 1;

-- How the join is run: exchanges bring rows with the same key to the same task.
EXPLAIN SELECT a.name, count(*) FROM flights f JOIN airlines a ON f.carrier = a.carrier GROUP BY a.name;

-- ---- The first day -----------------------------------------------------------------------

COPY flights FROM 'examples/flights/flights-2013-01-01.jsonl';

-- The last hour of the day is still open: its window is not among these.
SELECT max(window_start) AS last_closed_hour, sum(flights) AS flights_in_closed_hours FROM hourly;
SELECT * FROM busiest_hours ORDER BY flights DESC, window_start, origin;
SELECT * FROM top_routes ORDER BY flights DESC, origin, destination;

-- ---- The second day ----------------------------------------------------------------------

-- Its file has a record that is cut off in the middle, and at the end one from the morning before.
COPY flights FROM 'examples/flights/flights-2013-01-02.jsonl';

-- All views have moved on, together.
SELECT max(window_start) AS last_closed_hour, sum(flights) AS flights_in_closed_hours FROM hourly;
SELECT * FROM busiest_hours ORDER BY flights DESC, window_start, origin;
SELECT * FROM top_routes ORDER BY flights DESC, origin, destination;

-- The top of the last three hours that are over.
SELECT * FROM top_per_hour ORDER BY window_start DESC, place LIMIT 6;

-- The broken record did not stop anything, and is not lost.
SELECT source, error, text FROM spate.dead_letters ORDER BY source, "offset";

-- Neither is the late one: its window had closed, so it is kept aside.
SELECT source, row FROM spate.late_rows ORDER BY source, row;

-- ---- A table changes under a running query -----------------------------------------------

SELECT airline, flights, round(avg_delay, 1) AS avg_delay, late_arrivals FROM punctuality
WHERE airline LIKE 'American%' OR airline LIKE 'US%' ORDER BY airline;

-- US Airways became part of American. The flights that were joined before move over as well.
UPDATE airlines SET name = 'American Airlines Inc.' WHERE carrier = 'US';

SELECT airline, flights, round(avg_delay, 1) AS avg_delay, late_arrivals FROM punctuality
WHERE airline LIKE 'American%' OR airline LIKE 'US%' ORDER BY airline;

-- ---- The third day -----------------------------------------------------------------------

COPY flights FROM 'examples/flights/flights-2013-01-03.jsonl';

SELECT airline, flights, round(avg_delay, 1) AS avg_delay, late_arrivals FROM punctuality ORDER BY flights DESC, airline LIMIT 5;
SELECT wind, flights, round(avg_delay, 1) AS avg_delay FROM delay_by_wind ORDER BY wind;

-- Plain SQL runs on the tables and views as they are, all at one moment.
SELECT h.origin, sum(h.flights) AS flights, (SELECT count(*) FROM flights f WHERE f.origin = h.origin) AS all_flights
FROM hourly h GROUP BY h.origin ORDER BY h.origin;

-- What is running.
SELECT name, state FROM spate.jobs ORDER BY name;
