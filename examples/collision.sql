-- Collision warning in a car. Two computers: `sensors` reads the radar and what other cars send,
-- `centre` warns and informs. Control is due first, then warnings, then information; each computer
-- runs whatever is due first, and the system decides where `near` runs.
--
--   anabranch run examples/collision.sql --until-idle

CREATE STREAM radar (value BIGINT, distance DOUBLE)
  FROM rate(tps = 100, rows = 500, distance = '60 - value * 0.1') AT sensors;

-- What other cars have seen: no more than can be dealt with in time, the nearest first.
CREATE STREAM v2v (value BIGINT, car BIGINT, distance DOUBLE, speed DOUBLE)
  SHED ABOVE 200/s KEEP BY -distance
  FROM rate(tps = 500, rows = 2500, car = 'value % 7', distance = '(value * 37) % 200',
            speed = '5 + value % 30') AT sensors;

CREATE STREAM messages (value BIGINT, text STRING)
  FROM rate(tps = 50, rows = 250, text = 'concat(''queue ahead at kilometre '', value % 50)')
  AT centre;

CREATE QUERY control AS
  SELECT value, distance, distance < 25 AS brake FROM radar
  DEADLINE 200ms INTO jsonl(path = 'control.jsonl') AT sensors;

CREATE QUERY seen AS
  SELECT car, distance, greatest(speed, 0.1) AS speed FROM v2v AT sensors;

CREATE QUERY near AS
  SELECT car, distance, distance / speed AS seconds FROM seen WHERE distance < 100;

CREATE QUERY warning AS
  SELECT car, round(seconds, 2) AS seconds FROM near WHERE seconds < 2
  DEADLINE 500ms INTO jsonl(path = 'warning.jsonl') AT centre;

CREATE QUERY information AS
  SELECT upper(text) AS text FROM messages
  DEADLINE 3s INTO jsonl(path = 'information.jsonl') AT centre;
