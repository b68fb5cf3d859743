-- Silver: a row for each flight, with typed columns; a body that is none has no id and stays in bronze.
CREATE STREAMING TABLE silver AS
SELECT flight.*, queue_id, queue_offset
FROM (
  SELECT
    from_json(
      CAST(body AS STRING),
      'id INT, carrier STRING, tailnum STRING, origin STRING, dest STRING, distance INT, dep_delay INT, arr_delay INT, time_hour STRING'
    ) AS flight,
    queue_id,
    queue_offset
  FROM STREAM bronze
)
WHERE flight.id IS NOT NULL
