-- An apartment of three rooms, each a site, and a security centre, the fourth site, which has a
-- deputy, centre2. What they raise is written down at a desk.
--
-- A sensor in each room measures four times a second, in degrees Fahrenheit: 120 readings, half a
-- minute. Fire breaks out in room 2 and heats up room 1, then room 3. LATENESS lets a reading come
-- that much behind its time before it is left out: a busy machine is no reason to lose one.

CREATE STREAM sensor1 (value BIGINT, fahrenheit DOUBLE) LATENESS 10s
  FROM rate(tps = 4, rows = 120,
            fahrenheit = '70 + 90 / (1 + exp((84 - value) / 8)) + pmod(hash(value, 1), 20) / 10')
  AT room1;

CREATE STREAM sensor2 (value BIGINT, fahrenheit DOUBLE) LATENESS 10s
  FROM rate(tps = 4, rows = 120,
            fahrenheit = '70 + 250 / (1 + exp((48 - value) / 6)) + pmod(hash(value, 2), 20) / 10')
  AT room2;

CREATE STREAM sensor3 (value BIGINT, fahrenheit DOUBLE) LATENESS 10s
  FROM rate(tps = 4, rows = 120,
            fahrenheit = '70 + 70 / (1 + exp((100 - value) / 6)) + pmod(hash(value, 3), 20) / 10')
  AT room3;

-- Each room converts to Celsius and keeps every second reading, so less crosses the network.

CREATE QUERY temperature1 AS
  SELECT round((fahrenheit - 32) / 1.8, 1) AS celsius FROM sensor1 WHERE value % 2 = 0
  INTO jsonl(path = 'temperature1.jsonl') AT room1;

CREATE QUERY temperature2 AS
  SELECT round((fahrenheit - 32) / 1.8, 1) AS celsius FROM sensor2 WHERE value % 2 = 0
  INTO jsonl(path = 'temperature2.jsonl') AT room2;

CREATE QUERY temperature3 AS
  SELECT round((fahrenheit - 32) / 1.8, 1) AS celsius FROM sensor3 WHERE value % 2 = 0
  INTO jsonl(path = 'temperature3.jsonl') AT room3;

-- The centre raises an alarm for whatever is hotter than 50 °C. If it fails, centre2 goes on where
-- it was: the desk gets each alarm once.

CREATE QUERY alarm1 AS
  SELECT 'room1' AS room, celsius FROM temperature1 WHERE celsius > 50
  INTO jsonl(path = 'alarm1.jsonl') ON desk STANDBY ON centre2 AT centre;

CREATE QUERY alarm2 AS
  SELECT 'room2' AS room, celsius FROM temperature2 WHERE celsius > 50
  INTO jsonl(path = 'alarm2.jsonl') ON desk STANDBY ON centre2 AT centre;

CREATE QUERY alarm3 AS
  SELECT 'room3' AS room, celsius FROM temperature3 WHERE celsius > 50
  INTO jsonl(path = 'alarm3.jsonl') ON desk STANDBY ON centre2 AT centre;
