CREATE STREAM sensor (value BIGINT, celsius DOUBLE)
  FROM rate(tps = 10, rows = 30, celsius = '18 + 1.5 * value') AT room;

CREATE QUERY warm AS
  SELECT value, round(celsius * 1.8 + 32, 1) AS fahrenheit FROM sensor WHERE celsius > 40
  AT room;

CREATE QUERY alarm AS
  SELECT * FROM warm WHERE fahrenheit > 135 INTO console() AT centre;
