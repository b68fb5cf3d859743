-- Gold: one row for each airline, made anew by each run.
CREATE MATERIALIZED VIEW gold AS
SELECT
  carrier,
  count(*) AS flights,
  count(*) - count(dep_delay) AS cancelled,
  sum(distance) AS miles,
  round(avg(dep_delay), 1) AS mean_delay
FROM silver
GROUP BY carrier
