-- A transaction of its own: submissions have locks of runs and of definitions in either order, and would wait for this one in a circle.
--
-- A definition is looked up by its hash alone, by foreign keys too, and an index that has it beside something else would be gone through for it, as long as a
-- plan is kept that was made when the table was small.
drop index definitions_by_pipeline;
create index definitions_by_pipeline on definitions (pipeline);
