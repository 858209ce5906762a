-- A house of three sites: kitchen, cellar and centre.

CREATE STREAM kitchen_sensor (label STRING, celsius DOUBLE) TIMESTAMP time LATENESS 5s
  FROM file(path = 'kitchen.csv') AT kitchen;

CREATE STREAM cellar_sensor (value BIGINT, percent DOUBLE)
  FROM rate(tps = 20, rows = 60, percent = '40 + value % 25') AT cellar;

CREATE STREAM door (person STRING, opened BOOLEAN) TIMESTAMP time
  FROM python(function = 'door:events', count = 6) AT centre;

CREATE QUERY fahrenheit AS
  SELECT label, round(celsius * 1.8 + 32, 1) AS fahrenheit
  FROM kitchen_sensor WHERE celsius IS NOT NULL
  INTO csv(path = 'out/fahrenheit.csv') AT kitchen;

CREATE QUERY hot AS
  SELECT * FROM fahrenheit WHERE fahrenheit > 100
  INTO console() AT centre;

CREATE QUERY damp AS
  SELECT value, percent FROM cellar_sensor WHERE percent >= 60
  INTO jsonl(path = 'out/damp.jsonl') AT centre;

CREATE QUERY visitors AS
  SELECT upper(person) AS person, opened FROM door
  INTO jsonl(path = 'out/visitors.jsonl') AT centre;
