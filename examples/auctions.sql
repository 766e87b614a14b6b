-- Running averages of what auctions fetch, per category: a join and two aggregations over endless input.
-- For planning: spate simulate examples/cluster-3.toml examples/auctions.sql
CREATE SOURCE auction WITH (connector = 'nexmark', table = 'auction');
CREATE SOURCE bid WITH (connector = 'nexmark', table = 'bid');
CREATE MATERIALIZED VIEW average_price AS
SELECT category, avg(final) AS price
FROM (SELECT a.id, a.category, max(b.price) AS final
      FROM auction a JOIN bid b ON a.id = b.auction
      WHERE b.date_time BETWEEN a.date_time AND a.expires
      GROUP BY a.id, a.category)
GROUP BY category;
