-- A fire in an apartment: hot in all three rooms within a second of each other. The query names no
-- site: each of its operators goes where it makes the least traffic over the slowest links.
--
--   anabranch run examples/fire.sql --until-idle

CREATE STREAM kitchen (value BIGINT, celsius DOUBLE) AT room1
  FROM rate(tps = 20, rows = 200, start = '2026-01-31T12:00:00Z',
            celsius = '20 + 90 / (1 + exp((90 - value) / 12))');
CREATE STREAM hall (value BIGINT, celsius DOUBLE) AT room2
  FROM rate(tps = 20, rows = 200, start = '2026-01-31T12:00:00Z',
            celsius = '20 + 60 / (1 + exp((110 - value) / 12))');
CREATE STREAM bedroom (value BIGINT, celsius DOUBLE) AT room3
  FROM rate(tps = 20, rows = 200, start = '2026-01-31T12:00:00Z',
            celsius = '20 + 45 / (1 + exp((130 - value) / 12))');

CREATE QUERY fire AS
  MASTER bedroom
  SELECT round(kitchen.celsius, 1) AS kitchen, round(hall.celsius, 1) AS hall,
         round(bedroom.celsius, 1) AS bedroom
  FROM   kitchen[1 ROWS], hall[1 ROWS], bedroom[1 ROWS]
  WHERE  kitchen.celsius > 50 AND hall.celsius > 50 AND bedroom.celsius > 50
  INTO jsonl(path = 'fire.jsonl') ON centre;

-- How hot it was in the kitchen, every two seconds.
CREATE QUERY course AS
  SELECT round(avg(celsius), 1) AS mean, round(max(celsius), 1) AS hottest, window_end
  FROM kitchen[2s]
  INTO console(limit = 10);
