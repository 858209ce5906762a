-- Traffic sensors: 40 road segments report the speed of passing cars. Where it has been slow for two
-- seconds there is a queue; drivers two segments behind, who are fast still, are warned.
--
--   anabranch run examples/traffic.sql --until-idle

CREATE STREAM cars (value BIGINT, segment INT, speed DOUBLE) LATENESS 500ms AT road
  FROM rate(tps = 400, rows = 4000, start = '2026-01-31T08:00:00Z',
            segment = 'CAST(value % 40 AS INT)',
            speed = '90 - 70 * exp(-pow((value % 40 - value / 150D) / 2, 2)) + value % 7');

CREATE QUERY speeds AS
  SELECT segment, avg(speed) AS speed, count(*) AS cars, window_end
  FROM cars[2s SLIDE 1s] GROUP BY segment AT road;

CREATE QUERY queues AS
  SELECT segment, round(speed, 1) AS speed, cars, window_end FROM speeds WHERE speed < 60
  INTO jsonl(path = 'queues.jsonl') ON centre;

CREATE QUERY warnings AS
  SELECT behind.segment, round(behind.speed, 1) AS speed, round(ahead.speed, 1) AS ahead
  FROM speeds[1us] AS behind, speeds[1us] AS ahead
  WHERE behind.segment = ahead.segment - 2 AND behind.speed > 75 AND ahead.speed < 60
  INTO jsonl(path = 'warnings.jsonl') ON centre;

-- The sensors of a road know much of each other. With workers of its own and a PostgreSQL, a dead
-- worker's windows are estimated instead of computed again (docs/language.md, APPROXIMATE):
--
--   CREATE QUERY means AS SELECT segment, AVG(speed) AS speed FROM cars[30s SLIDE 10s]
--     GROUP BY segment APPROXIMATE WITHIN 5 CONFIDENCE 95%
--     INTO postgres(url = 'postgresql://…', table = 'means');
